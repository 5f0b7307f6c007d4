"""Compound transposes by squares, whose rows and columns are found by table."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.native.oracle import Buffer, Loops, agree, same
from tests.native.test_copy import permuted

pytestmark = pytest.mark.usefixtures("lines", "maker")

# name -> (shape, axes): several tiles, with edges.
LARGE = {
    "rows": ((9, 2, 64, 600), (3, 0, 2, 1)),
    "columns": ((1200, 9, 40, 2), (1, 3, 2, 0)),
    "both": ((2, 30, 5, 70, 2, 10), (4, 3, 5, 2, 1, 0)),
    "rows that are not cut on lines": ((16, 3, 37, 531), (3, 0, 2, 1)),
    "columns that are not cut on lines": ((1100, 19, 37, 3), (1, 3, 2, 0)),
    "batch": ((3, 13, 2, 40, 520), (0, 4, 1, 3, 2)),
    "a few rows are left": ((31, 33, 600), (2, 1, 0)),
    "a few columns are left": ((1111, 1030, 2), (2, 1, 0)),
    "rows whose middle loop is cut": ((20, 20, 20, 600), (3, 2, 1, 0)),
    "rows and columns whose middle loop is cut": ((20, 20, 20, 5, 5, 5), (4, 3, 5, 2, 1, 0)),
}


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", LARGE)
def test_compounds(name: str, width: int) -> None:
    agree(permuted(*LARGE[name]), width, (0, 0), (16, 16), (1, 1))


# Rows of several loops, of whose middle one a tile is left that is too low for a square.
LEFT_OVER = [
    (1, (8, 135, 3, 325)),
    (2, (2, 266, 2, 564)),
    (4, (3, 163, 3, 105)),
    (8, (4, 129, 3, 96)),
    (16, (3, 169, 2, 134)),
]


@pytest.mark.parametrize(("width", "shape"), LEFT_OVER)
def test_tiles_too_low_for_squares_between_others(width: int, shape: tuple[int, ...]) -> None:
    """A line is completed by the next tile, unless that writes only its own rows."""
    agree(permuted(shape, (3, 2, 1, 0)), width, (0, 0), (width, width), (0, 1))


@st.composite
def compounds(draw: st.DrawFn) -> tuple[Loops, int]:
    """Loops of several tiles, up to four for rows and four for columns; and bytes of an element."""
    width = draw(st.sampled_from((1, 2, 4, 8)))
    shape: list[int] = []
    for room in (6000 // width, 1500):
        side = draw(st.lists(st.sampled_from((2, 3, 5, 8, 20, 37, 64)), max_size=3))
        while math.prod(side) > room // 2:
            side.pop()
        side.insert(draw(st.integers(0, len(side))), room // math.prod(side))
        shape += side
    backwards = tuple(reversed(range(len(shape))))
    axes = draw(st.one_of(st.just(backwards), st.permutations(backwards)))
    return permuted(tuple(shape), tuple(axes)), width


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(compounds(), st.sampled_from((0, 0, 16, 1)))
def test_any_compound(copy: tuple[Loops, int], shift: int) -> None:
    agree(*copy, (shift, 0))


@st.composite
def left_over(draw: st.DrawFn) -> tuple[Loops, int]:
    """Reversed axes, of which the rows' middle one is often cut so that little is left."""
    width = draw(st.sampled_from((2, 4, 8)))
    rows = draw(st.integers(2, 12)), draw(st.integers(8, 2000 // width)), draw(st.integers(2, 4))
    columns = draw(st.integers(64, 600 // width + 64))
    return permuted((*rows, columns), (3, 2, 1, 0)), width


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(left_over())
def test_any_that_leaves_low_tiles(copy: tuple[Loops, int]) -> None:
    agree(*copy)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("room", [0, 1, 64])
def test_compounds_with_gaps(width: int, room: int) -> None:
    """Between the rows of the result, between those of the input, and backwards."""
    n, d = 3 * 2 * 200, 600
    rows: Loops = ((3, 400 * d, 400), (200, d, 2), (2, 200 * d, 1))
    back: Loops = ((3, 400 * d, 400), (200, d, 2), (2, -200 * d, 1))
    for loops in (rows, back):
        agree(((d, 1, n + room), *loops), width)
    wide = d + room
    agree(((d, 1, n), *((k, step // d * wide, to) for k, step, to in rows)), width)


def test_two_compounds_in_a_plan() -> None:
    """One thread makes tiles of both in turn."""
    n, d = 2 * 1024, 600

    def loops(half: int) -> Loops:
        heads = (n // half // 2, 2 * half * d, 2 * half)
        return (d, 1, n), heads, (half, d, 2), (2, half * d, 1)

    moves = [(k, k, (0, 0, loops(half))) for k, half in enumerate((64, 128))]
    x = [Buffer(n * d * 2, fill=np.random.default_rng(k)) for k in range(2)]
    same(moves, 2, x, [Buffer(n * d * 2) for _ in range(2)], threads=1)
