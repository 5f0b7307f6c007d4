"""Cost: every field is a count that can be worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xlayout as xl
from tests.strategies import several
from tests.table import pairs
from xlayout.algebra import Layout, Piece
from xlayout.algebra.shapes import bounds


def stretch(follows: Callable[[int], int | None]) -> int:
    """Positions in a row, from the first, on which the other side moves by one constant step."""
    found = [follows(0)]
    while (there := follows(len(found))) is not None:
        before = [b - a for a, b in itertools.pairwise([*found, there])]
        if len(set(before)) > 1:
            break
        found.append(there)
    return len(found)


def runs(piece: Piece) -> tuple[int, int, int]:
    """Elements in a row on the input side, on the output side, and on both."""
    i, o = piece.in_offset, piece.out_offset
    both_ways = pairs(i, o, piece.loops)
    forward = dict(sorted(both_ways, reverse=True))  # the first o
    backward = {o: i for i, o in both_ways}
    both = next(k for k in itertools.count(1) if backward.get(o + k) != i + k)
    return (
        stretch(lambda k: forward.get(i + k)),
        stretch(lambda k: backward.get(o + k)),
        both,
    )


def runs_as_views(layout: Layout) -> bool:
    try:
        layout(*map(np.zeros, layout.in_shapes), copy=False)
    except BufferError:
        return False
    return True


@given(several(), st.sampled_from([1, 2, 4, 8]))
def test_cost_counts_bytes(layout: Layout, itemsize: int) -> None:
    cost = layout.cost(itemsize)
    moved = int((layout.index() >= 0).sum())
    assert cost.bytes_read == moved * itemsize
    assert cost.bytes_written == layout.out_size * itemsize
    assert cost.peak_bytes == (layout.in_size + layout.out_size) * itemsize
    assert cost.pieces == len(layout.pieces)
    assert cost.is_view == runs_as_views(layout)
    assert (cost.lowering == "view") == cost.is_view


@given(several(), st.sampled_from([1, 2, 4]))
def test_cost_counts_contiguous_runs(layout: Layout, itemsize: int) -> None:
    cost = layout.cost(itemsize)
    ins, outs = bounds(layout.in_shapes), bounds(layout.out_shapes)
    found = [runs(p) for i, o in itertools.product(ins, outs) for p in layout.between(i, o)]
    wanted = tuple(itemsize * min(run) for run in zip(*found, strict=True)) or (0, 0, 0)
    assert (cost.run_in, cost.run_out, cost.run) == wanted


def test_cost_of_rows_moved_whole_is_memcpy_like() -> None:
    cost = xl.interleave.layout((8, 4096)).cost(2)
    assert (cost.run_in, cost.run_out, cost.run) == (8192, 8192, 8192)


@pytest.mark.parametrize(
    ("layout", "lowering"),
    [
        (Layout.identity((2, 3)), "view"),
        (xl.matrix_transpose.layout((2, 3)), "view"),
        (xl.interleave.layout((6,)), "permute"),
        (xl.trim.layout((5, 2), to=3), "view"),
        (xl.fuse_qkv.layout((4,), (2,), (2,), heads=4, kv_heads=2), "concatenate"),
        (xl.pad.layout((3,), to=5), "concatenate"),
        (xl.unstack.layout((5, 2)), "view"),
        (xl.split_qkv.layout((12, 4), heads=4, kv_heads=1, order="concat"), "view"),
        (xl.split_qkv.layout((16, 4), heads=4, kv_heads=2), "concatenate"),
        (xl.to_tiles.layout((4, 6), grid=(2, 3)), "view"),
        (Layout.identity((2, 3)).regrouped([(3,), (3,)], [(3,), (3,)]), "permute"),
    ],
    ids=str,
)
def test_cost_names_how_it_will_be_run(layout: Layout, lowering: str) -> None:
    assert layout.cost(4).lowering == lowering


def test_no_run_goes_on_in_another_array() -> None:
    for layout in (xl.stack.layout([(4,)] * 1000), xl.unstack.layout((1000, 4))):
        cost = layout.cost(2)
        assert (cost.run_in, cost.run_out, cost.run, cost.pieces) == (8, 8, 8, 1)
    cost = Layout.identity((7,)).regrouped(out_shapes=[(5,), (2,)]).cost(1)
    assert (cost.run_in, cost.run_out, cost.run) == (2, 2, 2)


def test_cost_of_nothing_made_of_nothing() -> None:
    assert Layout((), ((0, 3),), ()).cost(4).lowering == "concatenate"


def test_cost_of_what_no_machine_holds() -> None:
    cost = xl.regroup.layout((3 * 2**65,), sizes=(2**65, 2**66), groups=2).cost(2)
    assert (cost.bytes_read, cost.run, cost.pieces) == (3 * 2**66, 2**65, 2)
    assert cost.lowering == "concatenate"


def test_cost_prints_in_one_line() -> None:
    assert str(xl.interleave.layout((6,)).cost(4)) == (
        "24 B read, 24 B written, contiguous 12 B in, 8 B out; 1 piece, a permute; peak 48 B"
    )


def test_cost_of_a_view_says_that_nothing_need_move() -> None:
    assert str(xl.matrix_transpose.layout((2, 3)).cost(4)) == (
        "a view: nothing moves with copy=None; a copy takes 24 B read, 24 B written, "
        "contiguous 12 B in, 8 B out; 1 piece; peak 48 B"
    )
