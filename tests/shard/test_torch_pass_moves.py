"""Which ops of a graph only move what was gathered, and which look as if they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

from tests.shard.graphs import gathered, traced
from tests.shard.test_torch_pass import BF16, check, shard
from xlayout.torch import CastBeforeGather

aten = torch.ops.aten

MOVES: dict[str, Callable[[torch.Tensor], Any]] = {
    "alias": aten.alias,
    "detach": aten.detach,
    "diagonal": aten.diagonal,
    "permute": lambda x: aten.permute(x, [1, 0]),
    "reshape": lambda x: aten._reshape_alias(x, [48], [1]),
    "in sizes": lambda x: aten.split_with_sizes(x, [3, 5])[1],
    "squeeze": lambda x: aten.squeeze(x[None], 0),
    "unfold": lambda x: aten.unfold(x, 0, 2, 1),
    "view": lambda x: aten._unsafe_view(x, [48]),
}


@pytest.mark.parametrize("op", MOVES)
def test_a_cast_passes_what_only_moves(op: str) -> None:
    check(lambda w: MOVES[op](gathered(w)).to(BF16), shard(2, 6))


BY_ADDRESS: dict[str, Callable[[torch.Tensor], Any]] = {
    "as_strided": lambda x: x.as_strided((3, 2), (2, 1), 0) + 1,
    "as_strided, where it begins": lambda x: x.as_strided((3, 2), (2, 1), x.storage_offset()) + 1,
    "as_strided, of a view": lambda x: x.view(-1)[2:].as_strided((3, 2), (2, 1), 2) + 1,
    "as_strided_copy": lambda x: aten.as_strided_copy(x, (3, 2), (2, 1), 0),
    "as_strided_scatter": lambda x: aten.as_strided_scatter(x, x[:1] * 2, (1, 6), (6, 1), 0) + 1,
    "view as another dtype": lambda x: x.view(torch.int32) + 1,
}


@pytest.mark.parametrize("read", BY_ADDRESS)
@pytest.mark.parametrize("start", [0, 1, 2])
def test_what_is_read_by_address_begins_where_a_cast_begins(read: str, start: int) -> None:
    """A part of what was gathered begins elsewhere in its memory."""
    check(lambda w: BY_ADDRESS[read](gathered(w)[start:].to(BF16)), shard(2, 6))


def test_numbers_of_two_bytes_that_begin_oddly_are_read_as_four() -> None:
    check(lambda w: gathered(w)[1:7].to(BF16).view(torch.int32) + 1, shard(6))


def kept(fn: Callable[..., Any], *arrays: torch.Tensor) -> str:
    """Why the only gather of a function is left alone."""
    return why(traced(fn, *arrays))


def why(graph: GraphModule) -> str:
    cast, before = CastBeforeGather(), graph.code
    assert cast(graph) == 0
    assert graph.code == before
    (verdict,) = cast.verdicts
    return verdict.why


def test_what_elements_are_taken_by_is_not_moved() -> None:
    def use(w: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return table.index_select(0, gathered(w)).to(torch.int32)

    found = kept(use, torch.arange(3), torch.arange(24).reshape(12, 2))
    assert found == "index_select (aten.index_select.default) needs the wide elements"


def test_what_is_moved_into_memory_that_is_there_stays_wide() -> None:
    def use(w: torch.Tensor) -> torch.Tensor:
        return torch.cat([gathered(w)], out=w.new_empty(8, 6)).to(BF16)

    assert kept(use, shard(2, 6)) == "cat (aten.cat.out) needs the wide elements"


def test_a_cast_to_the_same_width_saves_nothing() -> None:
    found = kept(lambda w: gathered(w).to(torch.int32), shard(2, 6))
    assert found == "a cast from torch.float32 to torch.int32 does not narrow it"


def test_what_meets_a_gather_has_to_be_known() -> None:
    graph = traced(lambda w, v: torch.cat([gathered(w), v]).to(BF16), shard(2, 6), shard(3, 6))
    (_, other) = graph.graph.find_nodes(op="placeholder")
    del other.meta["val"]
    assert why(graph) == "cat (aten.cat.default) mixes in v_1 of another dtype"


def test_options_that_say_nothing_do_not_hold_a_cast_back() -> None:
    graph = traced(lambda w: gathered(w).to(BF16), shard(2, 6))
    (cast,) = graph.graph.find_nodes(op="call_function", target=aten._to_copy.default)
    cast.kwargs = {**cast.kwargs, "device": None, "non_blocking": False}
    assert CastBeforeGather()(graph) == 1
