"""Transposes whose rows or columns are made of several loops, as `(h two n) m -> m (h n two)`."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.native.oracle import Loops, agree
from tests.native.test_copy import permuted

pytestmark = pytest.mark.usefixtures("isa", "thresholds")
examples = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])

SIZES = st.sampled_from((2, 3, 4, 5, 8, 16, 33, 64, 130))
LARGEST = 1 << 16


@st.composite
def compounds(draw: st.DrawFn) -> Loops:
    """Loops in an order of their own on either side, short ones innermost, with some gaps."""
    short = st.sampled_from((2, 3, 4, 7, 8))
    shape = [draw(short), *draw(st.lists(SIZES, min_size=1, max_size=3)), draw(short)]
    while math.prod(shape) > LARGEST:
        shape.remove(max(shape))
    inner = (0, len(shape) - 1)  # the innermost loop of the input, and that of the output
    strides = []
    for first in inner:
        others = draw(st.permutations([k for k in range(len(shape)) if k != first]))
        steps, step = [0] * len(shape), 1
        for k in (first, *others):
            steps[k] = step
            step = step * shape[k] + draw(st.sampled_from((0, 0, 0, 0, 1, 64)))
        strides.append(steps)
    flipped = draw(st.sampled_from((None, None, *range(len(shape)))))
    if flipped is not None:
        strides[0][flipped] *= -1
    return tuple(zip(shape, *strides, strict=True))


@pytest.mark.usefixtures("maker")
@examples
@given(compounds(), st.sampled_from((1, 2, 4, 8, 16)), st.integers(0, 63))
def test_any(loops: Loops, itemsize: int, shift: int) -> None:
    agree(loops, itemsize, (shift, shift % 5))


# name -> (shape, axes): several tiles, cut along rows, columns or both.
LARGE = {
    "rows": ((6, 2, 64, 300), (3, 0, 2, 1)),
    "columns": ((300, 6, 64, 2), (1, 3, 2, 0)),
    "both": ((2, 3, 40, 50, 7, 2), (5, 3, 4, 1, 2, 0)),
    "rows that are cut": ((2, 5, 4001, 17), (3, 2, 1, 0)),
    "columns that are cut": ((17, 4001, 5, 2), (3, 2, 1, 0)),
    "short rows, adjacent": ((2, 5, 9001), (2, 1, 0)),
    "short columns, adjacent": ((9001, 5, 2), (2, 1, 0)),
    "short on both sides": ((2, 3, 4001, 3, 2), (4, 3, 2, 1, 0)),
    "pairs around, threes inside": ((2, 9001, 3), (2, 1, 0)),
    "pairs that lie between": ((4001, 3, 2, 2, 2), (4, 0, 3, 1, 2)),
    "too few for a tile": ((901, 5, 5, 2), (0, 3, 2, 1)),
    "just enough for a tile": ((301, 8, 8, 4), (0, 3, 2, 1)),
    "rows of three bytes": ((7, 3, 11, 3001), (3, 0, 2, 1)),
    "one loop for either": ((2, 4003, 2), (2, 1, 0)),
    "rows for which few columns leave room": ((3, 2, 176, 129), (3, 0, 2, 1)),
    "batch": ((2, 30, 2, 64, 33), (1, 4, 0, 3, 2)),
    "patches": ((3, 5, 16, 14, 16), (1, 3, 2, 4, 0)),
    "patches to pixels": ((5, 14, 16, 16, 3), (4, 0, 2, 1, 3)),
    "small patches": ((4, 40, 2, 33, 2), (1, 3, 2, 4, 0)),
    "small patches to pixels": ((40, 33, 2, 2, 4), (4, 0, 2, 1, 3)),
    "pieces in many loops": ((3, 3, 5, 7, 64, 2), (4, 5, 3, 2, 1, 0)),
    "segments in many loops": ((64, 2, 7, 5, 3, 3), (5, 4, 3, 2, 0, 1)),
}


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", LARGE)
def test_several_tiles(name: str, itemsize: int) -> None:
    shape, axes = LARGE[name]
    agree(permuted(shape, axes), itemsize, (0, 0), (3, 15))
