"""Ranks that load a DCP stored by their parts read these parts alone, and get the same model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.port.models import save_llama, save_model
from tests.port.on_torch_ranks import loaded
from tests.shard.pool import Ranks
from xlayout import Mesh, port

pytest.importorskip("transformers", minversion="5")

pytestmark = pytest.mark.distributed

SIZES = {
    "vocab_size": 1000,
    "hidden_size": 512,
    "intermediate_size": 1000,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 2,
}
BESIDE = 40_000  # bytes that torch reads with each chunk: the archive around it, in blocks


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("hf") / "llama", **SIZES)


@pytest.mark.parametrize("shape", [(1, 4), (2, 2), (4, 1)])
def test_a_rank_reads_its_own_parts_alone(
    llama: Path, tmp_path: Path, four: Ranks, shape: tuple[int, int]
) -> None:
    mesh = Mesh(shape, ("fsdp", "tp"))
    plan = port.run(llama, tmp_path / "parts", to="dcp", mesh=mesh).plan
    assert sum(plan.rank_bytes) < 1.01 * plan.write_bytes
    for rank, (same, read) in enumerate(four(loaded, tmp_path / "parts", llama, shape)):
        assert same
        chunks = sum(len(held[rank]) for held in plan.held.values())
        assert plan.rank_bytes[rank] < read < plan.rank_bytes[rank] + BESIDE * chunks


def test_experts_of_a_layer_in_one_parameter_are_cut_by_fsdp(tmp_path: Path, four: Ranks) -> None:
    experts = {"num_local_experts": 6, "num_experts_per_tok": 2, "num_hidden_layers": 1}
    mixtral = save_model(tmp_path / "mixtral", "Mixtral", **{**SIZES, **experts})
    mesh = Mesh((4,), ("fsdp",))
    plan = port.run(mixtral, tmp_path / "parts", to="dcp-fused", mesh=mesh).plan
    port.run(mixtral, tmp_path / "whole.safetensors", to="hf-fused")
    for rank, (same, read) in enumerate(
        four(loaded, tmp_path / "parts", mixtral, (4, 1), tmp_path / "whole.safetensors")
    ):
        assert same
        chunks = sum(len(held[rank]) for held in plan.held.values())
        assert plan.rank_bytes[rank] < read < plan.rank_bytes[rank] + BESIDE * chunks


def test_a_rank_reads_everything_of_whole_tensors(llama: Path, tmp_path: Path, four: Ranks) -> None:
    plan = port.run(llama, tmp_path / "whole", to="dcp").plan
    for same, read in four(loaded, tmp_path / "whole", llama, (2, 2)):
        assert same
        assert read > plan.write_bytes
