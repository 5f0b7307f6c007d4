"""We read whole what several ranks save, and several ranks load their parts of what we write."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tests.port.formats.arrays import same, save
from tests.port.formats.on_dcp_ranks import (
    load_dtensors,
    placements,
    save_dtensors,
    save_fsdp,
    wholes,
)
from tests.shard.pool import Ranks
from xlayout.port.formats import numpy_dtype, open_source

pytestmark = pytest.mark.distributed


def arrays(axes: int) -> dict[str, np.ndarray]:
    """Every tensor under each name that it is saved under."""
    return {
        f"{name}/{number}": whole.view(dtype=whole.dtype)
        .float()
        .numpy()
        .astype(numpy_dtype("bfloat16"))
        for name, whole in wholes().items()
        for number in range(len(placements(tuple(whole.shape), axes)))
    }


@pytest.mark.parametrize("form", ["torch_save", "safetensors"])
def test_tensors_cut_in_two_are_read_whole(tmp_path: Path, two: Ranks, form: str) -> None:
    two(save_dtensors, tmp_path / "d", (2,), form)
    read_whole(tmp_path / "d", arrays(1))


def test_tensors_cut_along_two_axes_of_a_mesh_are_read_whole(tmp_path: Path, four: Ranks) -> None:
    four(save_dtensors, tmp_path / "d", (2, 2), "torch_save")
    read_whole(tmp_path / "d", arrays(2))


def read_whole(path: Path, wanted: dict[str, np.ndarray]) -> None:
    with open_source(path) as source:
        assert source.tensors.keys() == {*wanted, "plain"}
        assert source.notes == ("step",)
        assert len([file for file in source.files if file.endswith(".distcp")]) > 1
        for name, array in wanted.items():
            assert same(source.read(name), array)
            cuts = [[slice(0, n // 2), slice(n // 2, n), slice(n // 3, n)] for n in array.shape]
            for region in itertools.product(*cuts):
                assert same(source.read(name, region), array[region])


def test_a_model_under_fsdp_is_read_whole(tmp_path: Path, two: Ranks) -> None:
    whole, _ = two(save_fsdp, tmp_path / "d")
    with open_source(tmp_path / "d") as source:
        for name, array in whole.items():
            assert same(source.read(name), array)
        assert source.read("optim.state.0.weight.step") == 1
        assert any(name.endswith(".lr") for name in source.notes)


@pytest.mark.parametrize("limit", ["5GB", 40])
def test_ranks_load_their_parts_of_what_we_write(
    tmp_path: Path, two: Ranks, limit: int | str
) -> None:
    save(tmp_path / "d", "dcp", arrays(1), max_shard_size=limit)
    assert all(two(load_dtensors, tmp_path / "d", (2,)))


def test_ranks_of_a_mesh_of_two_axes_load_their_parts(tmp_path: Path, four: Ranks) -> None:
    save(tmp_path / "d", "dcp", arrays(2))
    assert all(four(load_dtensors, tmp_path / "d", (2, 2)))
