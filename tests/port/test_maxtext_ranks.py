"""A MaxText tree cut for ranks has its chunks where JAX cuts, and a rank reads its own alone."""

from __future__ import annotations

import itertools
from pathlib import Path

import jax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from bench.child import bytes_read
from tests.port.models import save_llama
from xlayout import Mesh, port
from xlayout.port.formats import open_source
from xlayout.port.ranks import aligned

SIZES = {
    "vocab_size": 1024,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 2,
}
MESH = Mesh((2, 4), ("fsdp", "tp"))
BESIDE = 100_000  # bytes at most that are read to find the chunks, of which there may be hundreds

# By MaxText's rules, its axes embed lie along fsdp, those of mlp, heads and vocab along tp.
SPECS = {
    "token_embedder/embedding": P("tp", "fsdp"),
    "decoder/layers/self_attention/query/kernel": P("fsdp", None, "tp"),
    "decoder/layers/self_attention/key/kernel": P("fsdp", None, "tp"),
    "decoder/layers/self_attention/value/kernel": P("fsdp", None, "tp"),
    "decoder/layers/self_attention/out/kernel": P("tp", None, None, "fsdp"),
    "decoder/layers/mlp/wi_0/kernel": P("fsdp", None, "tp"),
    "decoder/layers/mlp/wi_1/kernel": P("fsdp", None, "tp"),
    "decoder/layers/mlp/wo/kernel": P("tp", None, "fsdp"),
    "decoder/logits_dense/kernel": P("fsdp", "tp"),
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("hf") / "llama", **SIZES)


def test_parts_are_those_of_a_named_sharding(llama: Path, tmp_path: Path) -> None:
    plan = port.plan(llama, tmp_path / "out", to="maxtext", mesh=MESH)
    devices = jax.make_mesh(MESH.shape, MESH.names, (jax.sharding.AxisType.Auto,) * 2)
    for name, spec in SPECS.items():
        shape = plan.specs[f"params/params/{name}"].shape
        where = NamedSharding(devices, spec).devices_indices_map(shape)
        for rank, device in enumerate(devices.devices.flat):
            cuts = zip(where[device], shape, strict=True)
            box = tuple((cut.start or 0, n if cut.stop is None else cut.stop) for cut, n in cuts)
            assert plan.held[f"params/params/{name}"][rank] == (box,)


def read_alone(path: Path, plan: port.PortPlan, rank: int) -> tuple[dict[str, bytes], int]:
    """Read what a rank holds; return that, and the bytes that were read for it."""
    found = {}
    with open_source(path) as source:
        before = bytes_read()
        for name, held in plan.held.items():
            (box,) = held[rank]
            found[name] = source.read(name, tuple(itertools.starmap(slice, box))).tobytes()
        return found, bytes_read() - before


@pytest.mark.parametrize("to", ["maxtext", "maxtext-unscanned"])
def test_a_rank_reads_its_own_chunks_alone(llama: Path, tmp_path: Path, to: str) -> None:
    plan = port.run(llama, tmp_path / "parts", to=to, mesh=MESH).plan
    port.run(llama, tmp_path / "whole", to=to)
    assert "cut for 8 ranks (fsdp=2 tp=4); each reads 1.44 MB\n" in str(plan)
    for rank in range(MESH.size):
        parts, few = read_alone(tmp_path / "parts", plan, rank)
        wanted, most = read_alone(tmp_path / "whole", plan, rank)
        assert parts == wanted
        assert plan.rank_bytes[rank] < few < plan.rank_bytes[rank] + BESIDE
        assert most > plan.write_bytes


def test_chunks_that_follow_tiles_are_counted_as_they_are_read(llama: Path, tmp_path: Path) -> None:
    plan = port.run(llama, tmp_path / "out", to="maxtext", mesh=MESH, max_ram="700kB").plan
    embedding = "params/params/token_embedder/embedding"
    assert plan.chunks[embedding] == (79, 256)  # a part has 256 rows
    assert plan.rank_bytes[0] == 1_584_128
    for rank in range(MESH.size):
        _, read = read_alone(tmp_path / "out", plan, rank)
        assert plan.rank_bytes[rank] < read < plan.rank_bytes[rank] + BESIDE


def test_regions_are_cut_along_each_axis_where_a_whole_number_of_parts_fills_them() -> None:
    held = tuple((((k, k + 4), (0, 5)),) for k in (0, 4, 8))
    assert aligned((12, 5), held) == (4, 5)
    assert aligned((8, 3), held) == (4, 3)
    assert aligned((6, 5), held) == (6, 5)
