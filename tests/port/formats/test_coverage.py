"""Coverage knows which elements were written, however they were tiled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlayout.errors import PortError
from xlayout.port.formats import TensorSpec
from xlayout.port.formats.coverage import Coverage

SHAPES = [(), (7,), (4, 5, 3)]


def boxes(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[tuple[int, int], ...]]:
    ends = [st.tuples(st.integers(0, n), st.integers(0, n)) for n in shape]
    return st.tuples(*ends).map(lambda box: tuple((min(pair), max(pair)) for pair in box))


@pytest.mark.parametrize("shape", SHAPES)
@given(st.data())
def test_coverage_is_what_a_mask_would_say(shape: tuple[int, ...], data: st.DataObject) -> None:
    coverage = Coverage({"x": TensorSpec("int8", shape)})
    mask = np.zeros(shape, bool)
    for tile in data.draw(st.lists(boxes(shape), max_size=12)):
        place = tuple(slice(*ends) for ends in tile)
        if mask[place].any():
            said = r"\[.*\] meets \[.*\], written" if shape else "a scalar that was written"
            with pytest.raises(PortError, match=f"^x: {said} before$"):
                coverage.claim("x", tile)
        else:
            coverage.claim("x", tile)
            mask[place] = True
    assert coverage.missing() == ({"x": int((~mask).sum())} if not mask.all() else {})


@pytest.mark.parametrize("step", [1, -1])
def test_tiles_in_scan_order_become_one_box(step: int) -> None:
    coverage = Coverage({"x": TensorSpec("int8", (64, 64))})
    for i, j in itertools.product(range(0, 64, 4)[::step], repeat=2):
        coverage.claim("x", ((i, i + 4), (j, j + 4)))
        assert len(coverage._boxes["x"]) <= 2
    assert not coverage.missing()
