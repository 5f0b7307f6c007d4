"""Directories that torch saves mean the same to us, bit for bit, in either form."""

from __future__ import annotations

import itertools
import os
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint.filesystem import SerializationFormat

from tests.port.formats.arrays import Array, bits, everything, same
from tests.port.formats.dcp_saves import change, save_dcp, to_torch
from tests.port.formats.programs import script
from xlayout.errors import FormatError
from xlayout.port.formats import numpy_dtype, open_source, sniff
from xlayout.port.formats.base import DTYPES
from xlayout.port.formats.safetensors_header import CODES

TORCH_SAVE, SAFETENSORS = SerializationFormat.TORCH_SAVE, SerializationFormat.SAFETENSORS


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("single", [True, False])
def test_we_read_every_dtype_that_torch_saves(tmp_path: Path, threads: int, single: bool) -> None:
    arrays = everything()
    state = {name: to_torch(array) for name, array in arrays.items()}
    save_dcp(tmp_path / "d", state, thread_count=threads, single_file_per_rank=single)
    assert sniff(tmp_path / "d") == "dcp"
    with open_source(tmp_path / "d") as source:
        assert source.format == "dcp"
        assert source.tensors.keys() == arrays.keys()
        sizes = {file: (tmp_path / "d" / file).stat().st_size for file in source.files}
        assert (dict(source.files), ".metadata" in sizes) == (sizes, True)
        assert len(sizes) == 1 + (threads if single else sum(a.size > 0 for a in arrays.values()))
        for name, array in arrays.items():
            assert same(source.read(name), array)


def test_we_read_the_form_that_torch_writes_and_does_not_read(tmp_path: Path) -> None:
    arrays = everything([d for d in CODES.values() if d != "float8_e8m0fnu"])
    state = {name: to_torch(array) for name, array in arrays.items()}
    save_dcp(tmp_path / "d", {**state, "step": 3}, serialization_format=SAFETENSORS)
    with open_source(tmp_path / "d") as source:
        for name, array in arrays.items():
            assert same(source.read(name), array)


def test_nested_names_are_joined_and_what_is_no_tensor_is_noted(tmp_path: Path) -> None:
    state = {
        "model": {"a.b": torch.ones(2), "blocks": [torch.zeros(3), torch.ones(1)]},
        "optim": {"step": 3, "groups": {"lr": 0.1}},
        "rng": torch.nn.Parameter(torch.ones(2)),
    }
    with open_source(save_dcp(tmp_path / "d", state)) as source:
        assert sorted(source.tensors) == ["model.a.b", "model.blocks.0", "model.blocks.1", "rng"]
        assert source.notes == ("optim.groups.lr", "optim.step")
        assert (dict(source.config), source.home) == ({}, None)


def test_the_config_is_the_one_beside_it(tmp_path: Path) -> None:
    save_dcp(tmp_path / "d", {"x": torch.ones(2)})
    (tmp_path / "d" / "config.json").write_text('{"hidden_size": 2}')
    with open_source(tmp_path / "d") as source:
        assert (source.config, source.home) == ({"hidden_size": 2}, tmp_path / "d")


TURNS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.transpose(0, 1),
    "its axes in a circle": lambda x: x.permute(2, 0, 1),
    "channels last": lambda x: x[:, :, None].contiguous(memory_format=torch.channels_last),
    "a column on its side": lambda x: x.reshape(-1, 1).T,
    "a part of a larger one": lambda x: x[1:3, 1:],
    "with steps": lambda x: x[::2],
    "one row again and again": lambda x: x[:1].expand(2, -1, -1),
}


@pytest.mark.parametrize("turn", TURNS)
def test_tensors_may_lie_in_any_order_of_their_axes(tmp_path: Path, turn: str) -> None:
    tensor = TURNS[turn](to_torch(bits("int16", (4, 3, 5))))
    with open_source(save_dcp(tmp_path / "d", {"x": tensor})) as source:
        array = tensor.numpy()
        assert same(source.read("x"), array)
        cuts = tuple(slice(n // 3, n - n // 4) for n in array.shape)
        assert same(source.read("x", cuts), array[cuts])


def test_refuses_elements_that_are_stored_once_for_several(tmp_path: Path) -> None:
    """As torch stores them if the storage happens to have as many bytes as the tensor."""
    once = to_torch(bits("int16", (4, 3)))[:1].expand(4, -1)
    with (
        open_source(save_dcp(tmp_path / "d", {"x": once})) as source,
        pytest.raises(
            FormatError, match=r"'x': its chunk at \[0, 0\]: strides \(0, 1\) from 0 in 24"
        ),
    ):
        source.read("x")


def test_what_is_much_in_another_order_goes_through_small_buffers(tmp_path: Path) -> None:
    tensor = to_torch(bits("float32", (1, 1500, 3000))).mT
    with open_source(save_dcp(tmp_path / "d", {"x": tensor})) as source:
        out = np.empty((1, 2990, 1499), np.float32)
        tracemalloc.start()
        source.read("x", (slice(0, 1), slice(5, 2995), slice(1, 1500)), out)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 9 << 20 < out.nbytes
        assert same(out, tensor.numpy()[:, 5:2995, 1:])


@pytest.fixture(scope="module")
def chunked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Array]:
    """A tensor in six uneven chunks, described in the metadata as if saved by ranks."""
    array = bits("bfloat16", (7, 10))
    rows, columns = [(0, 3), (3, 7)], [(0, 1), (1, 6), (6, 10)]
    boxes = list(itertools.product(rows, columns))
    parts = {f"{i}": array[slice(*a), slice(*b)] for i, (a, b) in enumerate(boxes)}
    path = tmp_path_factory.mktemp("dcp") / "d"
    save_dcp(path, {name: to_torch(part) for name, part in parts.items()}, thread_count=3)

    def join(metadata: object) -> None:
        join_chunks(metadata, [(a[0], b[0]) for a, b in boxes], array.shape)

    return change(path, join), array


def join_chunks(metadata: object, starts: list[tuple[int, ...]], shape: tuple[int, ...]) -> None:
    """Make one tensor "x" from tensors that are named by numbers."""
    from torch.distributed.checkpoint.metadata import MetadataIndex

    meta: object = metadata
    said, stored = meta.state_dict_metadata, meta.storage_data  # type: ignore[attr-defined]
    whole = said["0"]
    for number, start in enumerate(starts):
        (chunk,) = said.pop(str(number)).chunks
        chunk.offsets = torch.Size(start)
        key = next(key for key in stored if key.fqn == str(number))
        stored[MetadataIndex("x", start)] = stored.pop(key)
        if number:
            whole.chunks.append(chunk)
    whole.size = torch.Size(shape)
    said["x"] = whole


cut = st.tuples(st.integers(0, 7), st.integers(0, 7)).map(sorted)
wide_cut = st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=cut, columns=wide_cut)
def test_a_region_is_put_together_from_the_chunks_that_it_meets(
    chunked: tuple[Path, Array], rows: list[int], columns: list[int]
) -> None:
    path, array = chunked
    region = slice(*rows), slice(*columns)
    with open_source(path) as source:
        out = np.empty(array[region].shape, array.dtype)
        assert source.read("x", region, out) is out
        assert same(out, array[region])


def test_only_the_chunks_of_a_region_are_read(
    chunked: tuple[Path, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_source(chunked[0]) as source:
        source.read("x")  # by now it is known where they lie
        read: list[int] = []
        preadv = os.preadv
        monkeypatch.setattr(
            os, "preadv", lambda h, b, o: read.append(done := preadv(h, b, o)) or done
        )
        source.read("x", (slice(0, 2), slice(1, 6)))
        assert sum(read) == 2 * 5 * 2


def test_more_files_than_a_process_may_open_are_read(tmp_path: Path) -> None:
    arrays = {f"{i}": bits("int8", (4,), i) for i in range(100)}
    state = {name: to_torch(array) for name, array in arrays.items()}
    save_dcp(tmp_path / "d", state, single_file_per_rank=False)
    program = script(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
        with open_source(sys.argv[1]) as source:
            print(sum(int(source.read(name).view(np.uint8).sum()) for name in source.tensors))
        """,
        tmp_path / "d",
    )
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.stdout == f"{sum(int(a.view(np.uint8).sum()) for a in arrays.values())}\n", done


def test_refuses_what_it_cannot_find(chunked: tuple[Path, Array], tmp_path: Path) -> None:
    with open_source(chunked[0]) as source, pytest.raises(KeyError, match="y"):
        source.read("y")
    with pytest.raises(FormatError, match=r"\.metadata: no such file; wanted a regular file"):
        open_source(tmp_path, "dcp")


def test_reading_imports_no_torch(chunked: tuple[Path, Array]) -> None:
    program = script(
        """
        with open_source(sys.argv[1]) as source:
            source.read("x")
        print("torch" in sys.modules)
        """,
        chunked[0],
    )
    assert subprocess.run(program, capture_output=True, text=True).stdout == "False\n"


def test_dtypes_of_ours_are_all_of_torchs() -> None:
    assert all(isinstance(getattr(torch, name), torch.dtype) for name in DTYPES)
    assert all(getattr(torch, d).itemsize == numpy_dtype(d).itemsize for d in DTYPES)
