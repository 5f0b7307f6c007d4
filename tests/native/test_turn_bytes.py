"""Transposes of single bytes, whose lines are made in a different way with AVX512_VBMI."""

from __future__ import annotations

import pytest

import xlayout_native
from tests.native.oracle import agree

# Each instruction set, including those that differ only here.
pytestmark = [
    pytest.mark.usefixtures("isa", "thresholds"),
    pytest.mark.parametrize("isa", xlayout_native.get_isas(), indirect=True),
]


@pytest.mark.parametrize(("high", "wide"), [(1024, 64), (1025, 67), (2113, 129), (3000, 301)])
def test_rows_that_begin_anywhere(high: int, wide: int) -> None:
    for room in (0, 1, 5):  # between one row of the result and the next
        agree(
            ((wide, 1, high + room), (high, wide, 1)),
            1,
            *((shift, shift % 3) for shift in (0, 1, 2, 31, 63)),
        )
