"""Inside `regather` no gathered weight outlives its use: gradients are the same, memory is less."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.shard import on_ranks_regather
from tests.shard.pool import Pool
from xlayout.shard import Mesh, Sharding
from xlayout.torch import regather
from xlayout_torch import collective

pytestmark = pytest.mark.distributed

FSDP, GRID = Mesh(4, "fsdp"), Mesh((2, 2), ("dp", "fsdp"))
ROWS = Sharding(FSDP, ("fsdp",))


@pytest.mark.parametrize("local", [True, False], ids=["local tensors", "DTensors"])
@pytest.mark.parametrize(
    "src", [ROWS, Sharding(FSDP, (None, "fsdp")), Sharding(GRID, ("fsdp",))], ids=str
)
def test_gradients_are_the_same_to_the_bit(ranks: Pool, src: Sharding, local: bool) -> None:
    for same, plain, again in ranks(on_ranks_regather.trained, src, local):
        assert same
        assert plain["kept"] == 3  # a gathered weight a layer
        assert again["kept"] == 0
        assert again["recv"] > plain["recv"]  # it travels once more


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the memory")
def test_memory_falls_by_every_gathered_weight_but_one(ranks: Pool) -> None:
    layers, width = 8, 1024
    for plain, again in ranks(on_ranks_regather.resident, ROWS, layers, width):
        whole = 2 * width**2
        assert plain - again > 0.8 * (layers - 1) * whole


@pytest.mark.parametrize("saved", on_ranks_regather.SAVED)
@pytest.mark.parametrize("how", on_ranks_regather.EXCHANGES)
def test_selective_checkpoints_save_what_was_gathered_or_gather_again(
    ranks: Pool, how: str, saved: str
) -> None:
    for src in (ROWS, Sharding(GRID, ("fsdp",))):
        assert all(ranks(on_ranks_regather.checkpointed, src, how, saved))


def test_what_was_not_gathered_is_saved_as_ever(ranks: Pool) -> None:
    assert all(ranks(on_ranks_regather.ungathered))
    assert all(ranks(on_ranks_regather.sparse, ROWS))


def test_parts_that_nothing_needs_are_let_go_of(ranks: Pool) -> None:
    assert ranks(on_ranks_regather.released, ROWS) == [[True] * 3] * 4


def test_where_torch_forbids_hooks_nobody_listens_afterwards() -> None:
    before = list(collective.LISTENERS)
    forbidden = torch.autograd.graph.disable_saved_tensors_hooks("none here")
    with forbidden, pytest.raises(RuntimeError, match="none here"), regather():
        pass
    assert before == collective.LISTENERS


@pytest.mark.parametrize("how", on_ranks_regather.USES)
def test_what_becomes_of_a_whole_is_kept_in_mind(ranks: Pool, how: str) -> None:
    assert all(ranks(on_ranks_regather.used, ROWS, how))


@pytest.mark.parametrize("local", [True, False], ids=["the local tensor", "the DTensor"])
def test_a_part_that_was_written_into_is_refused(ranks: Pool, local: bool) -> None:
    for said in ranks(on_ranks_regather.written, ROWS, local):
        assert said.startswith("regather: a part was written into between its gather and the")


def test_what_is_gathered_again_is_described_as_before(ranks: Pool) -> None:
    assert all(ranks(on_ranks_regather.described, ROWS))


def test_a_whole_is_saved_as_it_is_if_its_part_is_another_by_then(ranks: Pool) -> None:
    assert all(ranks(on_ranks_regather.written_before, ROWS))


@pytest.mark.parametrize("before", [False, True], ids=["the gather", "the part"])
def test_in_inference_mode_there_is_nothing_to_save(ranks: Pool, before: bool) -> None:
    assert all(ranks(on_ranks_regather.inferred, ROWS, before))


def test_what_is_needed_twice_at_a_time_is_gathered_once(ranks: Pool) -> None:
    for there, back in ranks(on_ranks_regather.used_twice, ROWS):
        assert there == 3 * 8 * 8  # three quarters of an array of 256 bytes
        assert back == 2 * there  # it, and its gradient
