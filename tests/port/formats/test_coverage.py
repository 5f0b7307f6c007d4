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

SHAPE = (4, 5, 3)
boxes = st.tuples(
    *[
        st.tuples(st.integers(0, n), st.integers(0, n)).map(lambda ends: tuple(sorted(ends)))
        for n in SHAPE
    ]
)


@given(st.lists(boxes, max_size=12))
def test_coverage_is_what_a_mask_would_say(tiles: list[tuple[tuple[int, int], ...]]) -> None:
    coverage = Coverage({"x": TensorSpec("int8", SHAPE)})
    mask = np.zeros(SHAPE, bool)
    for tile in tiles:
        place = tuple(slice(*ends) for ends in tile)
        if mask[place].any():
            with pytest.raises(PortError, match=r"x: \[.*\] meets \[.*\], written before"):
                coverage.claim("x", tile)
        else:
            coverage.claim("x", tile)
            mask[place] = True
    assert coverage.missing() == ({"x": int((~mask).sum())} if not mask.all() else {})


def test_tiles_in_scan_order_become_one_box() -> None:
    coverage = Coverage({"x": TensorSpec("int8", (64, 64))})
    for i, j in itertools.product(range(0, 64, 4), repeat=2):
        coverage.claim("x", ((i, i + 4), (j, j + 4)))
        assert len(coverage._boxes["x"]) <= 2
    assert not coverage.missing()
