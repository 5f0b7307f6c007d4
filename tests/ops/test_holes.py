"""The holes of an output are found as boxes, and nothing else is filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xlayout as xl
import xlayout_numpy
from tests.strategies import layouts, several
from xlayout.algebra import Layout
from xlayout.algebra.shapes import bounds
from xlayout.lower.holes import holes_of


@given(st.one_of(layouts(), several()))
def test_boxes_are_the_holes_or_all_there_is(layout: Layout) -> None:
    holes = layout.index() < 0
    outputs = zip(bounds(layout.out_shapes), layout.out_shapes, holes_of(layout), strict=True)
    for (start, stop), shape, boxes in outputs:
        filled = np.zeros(shape, int)
        for box in boxes:
            filled[tuple(slice(*side) for side in box)] += 1
        assert np.array_equal(filled.reshape(-1), holes[start:stop]) or (filled == 1).all()


def within(*starts: int) -> Layout:
    """A (2, 3) matrix that begins at `starts` in one of (4, 6)."""
    row, column = starts
    rows = Layout.slice((4, 6), row, row + 2, axis=0)
    return (rows >> Layout.slice((2, 6), column, column + 3, axis=1)).inverse()


EXACT: dict[str, tuple[Layout, list[Any]]] = {
    "none": (Layout.identity((4, 6)), [()]),
    "at an end": (xl.pad.layout((4, 3), axis=1, to=5), [(((0, 4), (3, 5)),)]),
    "at a beginning": (within(2, 0), [(((0, 2), (0, 6)), ((2, 4), (3, 6)))]),
    "all around": (
        within(1, 2),
        [(((0, 1), (0, 6)), ((3, 4), (0, 6)), ((1, 3), (0, 2)), ((1, 3), (5, 6)))],
    ),
    "before, between and after": (
        (
            Layout.parse("(a + b + c + d + e) -> (b + d + a + c + e)", a=1, b=2, c=3, d=4, e=5)
            >> Layout.slice((15,), 0, 6, axis=0)
        ).inverse(),
        [(((0, 1),), ((3, 6),), ((10, 15),))],
    ),
    "around two pieces": (
        Layout.parse("r (a + b) -> r (b + a)", (2, 3), a=1) >> within(1, 2),
        [(((0, 1), (0, 6)), ((3, 4), (0, 6)), ((1, 3), (0, 2)), ((1, 3), (5, 6)))],
    ),
    "of an axis that is merged": (
        xl.interleave.layout((8,)) >> Layout.pad((8,), axis=0, to=9),
        [(((8, 9),),)],
    ),
    "in each output": (
        Layout.slice((6,), 1, 5, axis=0).inverse() >> Layout.concat([(2,), (4,)], axis=0).inverse(),
        [(((0, 1),),), (((3, 4),),)],
    ),
    "every other column": (
        (xl.deinterleave.layout((4, 6), axis=1) >> Layout.slice((4, 6), 0, 3, axis=1)).inverse(),
        [(((0, 4), (0, 6)),)],
    ),
    "an empty output": (Layout.pad((4, 0), axis=0, to=5), [()]),
}


@pytest.mark.parametrize("name", EXACT)
def test_holes(name: str) -> None:
    layout, boxes = EXACT[name]
    assert list(holes_of(layout)) == boxes


def test_only_holes_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    filled, assign = [], xlayout_numpy.assign

    def counted(to: Any, source: Any) -> None:
        if not isinstance(source, np.ndarray):
            filled.append(to.size)
        assign(to, source)

    monkeypatch.setattr(xlayout_numpy, "assign", counted)
    x = np.arange(200 * 300).reshape(200, 300)
    made = xl.pad(x, axis=1, to=310, value=7)
    out = np.zeros((210, 300), x.dtype)
    xl.pad(x, axis=0, to=210, out=out, value=8)
    assert filled == [200 * 10, 10 * 300]
    assert np.array_equal(made, np.pad(x, ((0, 0), (0, 10)), constant_values=7))
    assert np.array_equal(out, np.pad(x, ((0, 10), (0, 0)), constant_values=8))


def test_memory_in_any_order_is_filled_in_its_holes() -> None:
    x = np.arange(6).reshape(2, 3)
    out = np.zeros((12, 4), int).T[::-1, ::2]
    within(1, 2)(x, out=out, fill=9)
    assert out.tolist() == [[9] * 6, [9, 9, 0, 1, 2, 9], [9, 9, 3, 4, 5, 9], [9] * 6]
