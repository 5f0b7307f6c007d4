"""Transposes with only a few elements along one side."""

from __future__ import annotations

import pytest

from tests.native.oracle import Loops, agree

pytestmark = pytest.mark.usefixtures("isa", "thresholds")

PLACES = tuple((shift, shift % 5) for shift in (0, 1, 16, 63))  # bytes past a line


def turned(batch: int, high: int, wide: int, room: int) -> Loops:
    """Rows that become columns, in a batch with gaps of `room` elements."""
    size = high * wide
    return (batch, size, size + room), (wide, 1, high), (high, wide, 1)


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("few", [2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16])
@pytest.mark.parametrize("many", [7, 64, 65, 20_003])
def test_short_rows_and_columns(many: int, few: int, itemsize: int) -> None:
    batch = max(100_000 // (many * few * itemsize), 1)
    for high, wide in ((many, few), (few, many)):
        agree(turned(batch, high, wide, 0), itemsize, *PLACES)


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "loops",
    [
        turned(9, 300, 3, 1),
        turned(9, 3, 300, 1),
        turned(2, 21_830, 3, 0),  # of bytes, a tile and six rows
        ((3, 1, 300), (300, 4, 1)),  # short rows with gaps between them,
        ((300, 1, 4), (3, 300, 1)),
        ((3, 1, 301), (300, 3, 1)),  # and long ones
        ((300, 1, 3), (3, 301, 1)),
        ((3, -1, 300), (300, 3, 1)),
        ((300, -1, 3), (3, 300, 1)),
        ((3, 1, 300), (300, -3, 1)),
        ((300, 1, 3), (3, 0, 1)),
        ((5, 1, 2100), (7, 15, 300), (300, 105, 1)),
        ((3, 1, 2100), (5, 3, 420), (420, 15, 1)),
    ],
)
def test_that_lie_elsewhere(loops: Loops, itemsize: int) -> None:
    agree(loops, itemsize, *PLACES)
