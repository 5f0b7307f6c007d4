"""Gaps: short rows behind each of which something is left out, as columns of a wider array."""

from __future__ import annotations

import pytest

from tests.native.oracle import Loops, agree

pytestmark = pytest.mark.usefixtures("isa", "thresholds")

WIDTHS = (1, 3, 5, 8, 17, 24, 64, 100, 129, 255)  # elements of a row
ROOM = 50_000  # bytes: several tiles that are staged


def forms(width: int, gap: int, itemsize: int) -> dict[str, Loops]:
    """Ways to fill rows of so many elements."""
    pitch, n = width + gap, ROOM // width // itemsize
    m = n // 9
    pairs = (n, 2 * width, 2 * width + gap)
    return {
        "as they are": ((n, width, pitch), (width, 1, 1)),
        "in turn": ((2, width, n // 2 * pitch), (n // 2, 2 * width, pitch), (width, 1, 1)),
        "zipped": (pairs, (width, 1, 2), (2, width, 1)),
        "unzipped": (pairs, (2, 1, width), (width, 2, 1)),
        "transposed": ((n, 1, pitch), (width, n, 1)),
        "transposed in batches": ((9, m * width, m * pitch), (m, 1, pitch), (width, m, 1)),
        "transposed from halves": ((n // 2, 1, 2 * pitch), (2, n // 2, pitch), (width, n, 1)),
    }


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("gap", [1, 3, 70])
@pytest.mark.parametrize("width", WIDTHS)
def test_short_rows(width: int, gap: int, itemsize: int) -> None:
    for number, loops in enumerate(forms(width, gap, itemsize).values()):
        agree(loops, itemsize, ((0, 3, 32)[number % 3], number % 5))
