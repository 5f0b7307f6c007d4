"""There and back gives the same bytes, through any amount of memory, whatever the head size."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.port.models import PAIRS, same_bytes, save_llama, tensors
from xlayout import port
from xlayout.errors import PortError
from xlayout.port.formats import open_source


@pytest.mark.parametrize(("any_llama", "to"), PAIRS, indirect=["any_llama"])
def test_back_from_maxtext_every_byte_is_the_same(any_llama: Path, tmp_path: Path, to: str) -> None:
    port.run(any_llama, tmp_path / "maxtext", to=to)
    report = port.run(tmp_path / "maxtext", tmp_path / "hf", to="hf")
    assert report.comparison is not None
    assert report.comparison.identical
    assert same_bytes(any_llama, tmp_path / "hf")
    configs = [
        json.loads((path / "config.json").read_text()) for path in (any_llama, tmp_path / "hf")
    ]
    assert configs[0] == configs[1]


@pytest.mark.parametrize("dim", [96, 128])  # 1 / (1 / √96) is no √96
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_scale_is_undone_in_every_dtype(tmp_path: Path, dtype: str, dim: int) -> None:
    source = save_llama(tmp_path / "source", dtype=dtype, num_key_value_heads=2, head_dim=dim)
    port.run(source, tmp_path / "maxtext", to="maxtext")
    assert port.verify(tmp_path / "maxtext", source).identical
    port.run(tmp_path / "maxtext", tmp_path / "hf", to="safetensors")
    assert same_bytes(source, tmp_path / "hf")


def test_dialects_port_into_one_another_without_a_stop_at_hf(
    wide_llama: Path, tmp_path: Path
) -> None:
    port.run(wide_llama, tmp_path / "scanned", to="maxtext")
    port.run(tmp_path / "scanned", tmp_path / "unscanned", to="maxtext-unscanned")
    port.run(tmp_path / "unscanned", tmp_path / "default", to="maxtext-default-rope")
    port.run(tmp_path / "default", tmp_path / "hf", to="hf")
    assert same_bytes(wide_llama, tmp_path / "hf")


@pytest.mark.parametrize("to", ["hf", "maxtext", "dcp"])
def test_any_amount_of_memory_gives_the_same_tensors(
    wide_llama: Path, tmp_path: Path, to: str
) -> None:
    port.run(wide_llama, tmp_path / "roomy", to=to)
    with pytest.raises(PortError, match="is the least that works") as refused:
        port.plan(wide_llama, tmp_path / "tight", to=to, max_ram=64)
    least = int(str(refused.value).split(" needs ")[1].split(", which")[0].replace(",", ""))
    with pytest.raises(PortError, match="is the least that works"):
        port.plan(wide_llama, tmp_path / "tight", to=to, max_ram=least - 1)
    report = port.run(wide_llama, tmp_path / "tight", to=to, max_ram=least)
    assert report.plan.buffer_bytes <= least
    with open_source(tmp_path / "roomy") as a, open_source(tmp_path / "tight") as b:
        assert a.tensors == b.tensors
        assert all(a.read(name).tobytes() == b.read(name).tobytes() for name in a.tensors)


def test_tensor_data_never_takes_more_memory_than_was_allowed(tmp_path: Path) -> None:
    sizes = {"vocab_size": 40_000, "hidden_size": 256, "intermediate_size": 4096}
    source = save_llama(tmp_path / "source", dtype="float32", num_key_value_heads=2, **sizes)
    largest = max(array.nbytes for array in tensors(source).values())
    budget = 4 << 20
    assert largest > 8 * budget
    port.run(source, tmp_path / "warm", to="maxtext", max_ram=budget)
    tracemalloc.start()
    try:
        port.run(source, tmp_path / "out", to="maxtext", max_ram=budget)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < budget + (3 << 20)


def test_a_single_file_is_a_target_too(wide_llama: Path, tmp_path: Path) -> None:
    report = port.run(wide_llama, tmp_path / "model.safetensors", to="hf")
    assert report.comparison is not None
    assert report.comparison.identical
    assert same_bytes(wide_llama, tmp_path)


def test_progress_counts_every_byte_written(wide_llama: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    report = port.run(wide_llama, tmp_path / "out", to="maxtext", progress=seen.append)
    assert sum(seen) == report.plan.write_bytes


@pytest.mark.parametrize("to", ["maxtext", "maxtext-unscanned"])
def test_the_state_of_a_training_run_stays_behind_and_is_named(
    wide_llama: Path, tmp_path: Path, to: str
) -> None:
    port.run(wide_llama, tmp_path / "tree", to=to)
    with ocp.PyTreeCheckpointer() as saver:
        params = saver.restore(tmp_path / "tree" / "0" / "items")["params"]
        moments = {"mu": params, "nu": params, "count": np.int32(3)}
        random = {"params": {"key": np.uint32([1, 2]), "count": np.uint32(3)}}
        state = {
            "params": params,
            "opt_state": moments,
            "step": np.int32(7),
            "nnx_aux": {"model": {"decoder": {"rngs": random}}},
        }
        saver.save(tmp_path / "run" / "0" / "items", state)
    (tmp_path / "run" / "config.json").write_bytes((tmp_path / "tree/config.json").read_bytes())
    plan = port.run(tmp_path / "run", tmp_path / "hf", to="hf").plan
    assert {
        "step",
        "opt_state/count",
        "opt_state/mu/params/token_embedder/embedding",
        "nnx_aux/model/decoder/rngs/params/key",
    } <= {*plan.unkept}
    assert same_bytes(wide_llama, tmp_path / "hf")
