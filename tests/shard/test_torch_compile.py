"""Inside torch.compile resharding and gathering are part of the one graph, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest

import xlayout as xl
from tests.shard import on_ranks_compiled
from tests.shard.pool import Pool
from xlayout.shard import Mesh, Sharding, Split

pytestmark = pytest.mark.distributed

TP, GRID = Mesh(4, "tp"), Mesh((2, 2), ("dp", "tp"))
ROWS, COLUMNS = Sharding(TP, ("tp",)), Sharding(TP, (None, "tp"))
FUSED = Sharding(TP, ("tp",), splits={0: Split(segments=2)})
SHAPE = (24, 10)
GLU = xl.interleave.layout(SHAPE, block=2)
OUT_OF_ORDER = (2, 0, 3, 1)


def values(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


RESHARDS = {
    "interleave, from fused shards": (GLU, FUSED, COLUMNS, None),
    "interleave, mesh out of order": (GLU, ROWS, ROWS, OUT_OF_ORDER),
    "grid": (GLU, Sharding(GRID, ("dp", "tp")), Sharding(GRID, ("tp", "dp")), None),
}


@pytest.mark.parametrize("case", RESHARDS)
def test_a_compiled_reshard_is_the_eager_one(ranks: Pool, case: str) -> None:
    layout, src, dst, order = RESHARDS[case]
    for made in ranks(on_ranks_compiled.resharded, values(), src, dst, layout, order):
        assert made.same
        assert made.collectives == ("all_to_all_single",) * 2  # there, and the gradient back


OPS = {
    "where the data falls": ("matrix_transpose", {"comm": "local"}, COLUMNS, 0),
    "what must move": ("interleave", {"block": 3}, ROWS, 2),
    "to a sharding": ("interleave", {"block": 3, "out_sharding": COLUMNS}, COLUMNS, 2),
    "to placements": ("interleave", {"block": 3, "out_sharding": "columns"}, COLUMNS, 2),
    "with holes": ("pad", {"to": 30, "value": 7.0}, ROWS, 2),
}


@pytest.mark.parametrize("case", OPS)
def test_a_compiled_op_is_the_eager_one(ranks: Pool, case: str) -> None:
    op, options, dst, messages = OPS[case]
    for made in ranks(on_ranks_compiled.ran, values(), ROWS, op, options, dst):
        assert made.same
        assert made.collectives == ("all_to_all_single",) * messages


GATHER = ("all_gather_into",) * 2 + ("reduce_scatter",)  # there, again for the gradient, and back
EXCHANGE = ("all_to_all_single",) * 3
GATHERS = {
    "rows": (ROWS, None, (24, 10), None, GATHER),
    "columns, mesh out of order": (COLUMNS, "tp", (10, 24), OUT_OF_ORDER, GATHER),
    "uneven rows, mesh out of order": (ROWS, "tp", (10, 6), OUT_OF_ORDER, EXCHANGE),
    "the minor of two axes": (Sharding(GRID, (("tp", "dp"),)), "dp", (8, 6), None, GATHER),
    "the major of two axes": (Sharding(GRID, (("dp", "tp"),)), "dp", (8, 6), None, EXCHANGE),
    "two axes, mesh out of order": (
        Sharding(GRID, ("tp", "dp")), None, (8, 6), OUT_OF_ORDER,
        ("all_gather_into",) * 4 + ("reduce_scatter",) * 2),
    "copies": (Sharding(GRID, ("tp",)), None, (8, 6), None, (*GATHER, "all_reduce")),
}  # fmt: skip


@pytest.mark.parametrize("case", GATHERS)
def test_a_compiled_gather_is_the_eager_one_and_saves_nothing_gathered(
    ranks: Pool, case: str
) -> None:
    src, axis, shape, order, collectives = GATHERS[case]
    for rank, made in enumerate(
        ranks(on_ranks_compiled.gathered, values(shape), src, axis, "bfloat16", order)
    ):
        place = rank if order is None else order.index(rank)
        assert made.same
        assert made.collectives == collectives
        assert max(made.saved) <= np.prod(src.local_shape(place, shape))


def test_a_sharding_that_changes_is_compiled_anew(ranks: Pool) -> None:
    assert all(ranks(on_ranks_compiled.changing, values(), ROWS, COLUMNS, FUSED))


def test_a_call_that_is_compiled_again_is_known(ranks: Pool) -> None:
    assert ranks(on_ranks_compiled.recompiled, values(), ROWS) == [[0, 0, 1, 1, 1]] * 4


def test_options_may_differ_from_call_to_call(ranks: Pool) -> None:
    assert ranks(on_ranks_compiled.varying, values(), ROWS) == [[]] * 4


def test_one_function_may_be_given_several_ops(ranks: Pool) -> None:
    assert all(ranks(on_ranks_compiled.alternating, values(), ROWS, "interleave", "deinterleave"))


def test_sizes_of_several_arrays_may_become_open(ranks: Pool) -> None:
    assert all(ranks(on_ranks_compiled.growing, values(), ROWS))
