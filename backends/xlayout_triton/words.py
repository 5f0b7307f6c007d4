"""Words: which copies of narrow elements are moved in words that rows share, and how.

Rows that begin anywhere within a word cannot be moved in vectors. Three kinds of copies are
moved in words all the same, which are put together from two of their neighbours:

    SHIFTED       transposes with long rows on both sides (`shift`)
    FEW_COLUMNS   and of a few columns, as the channels of images (`narrow`)
    FEW_ROWS      and of a few rows, the way back

Nothing here needs Triton or a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from xlayout_triton.shape import Four
from xlayout_triton.side import FAR, Loop

__all__ = [
    "FEW_COLUMNS",
    "FEW_ROWS",
    "ROW",
    "SHARED",
    "SHIFTED",
    "TRIED",
    "VECTORS",
    "WORD",
    "Words",
    "words_of",
]

VECTORS, SHIFTED, FEW_COLUMNS, FEW_ROWS = range(4)
"""Ways to move a tile."""

SHARED = 4
"""Bytes that a vector has at least, and two elements: rows of narrower ones share words."""

WORD = 8
"""Bytes of a word that is written."""

ROW = 32
"""Words of its rows, one for each thread of a warp; one at least lacks its other half."""


class Shift(NamedTuple):
    """A shifted tile: bytes of a word that is read, and words of a row that are not written.

    If these are four, the others fill whole sectors of the second cache.
    """

    read: int
    left_out: int
    warps: int
    registers: int


SHIFTS = {1: Shift(4, 1, 8, 64), 2: Shift(8, 4, 8, 64), 4: Shift(8, 4, 4, 80)}
"""Bytes of an element -> what tiles are fastest on an H200 (docs/adr/0043-bytes-by-permutes.md).

Registers are few, and enough for all words of a whole tile to be on their way at once.
"""

TRIED = {
    (way, unit): matrix
    for way, matrix in {
        SHIFTED: (257, 129), FEW_COLUMNS: (1021, 3), FEW_ROWS: (3, 1021),
    }.items()
    for unit in SHIFTS
    if way == SHIFTED or unit < SHARED
}  # fmt: skip
"""(way, bytes of an element) -> rows and columns of a matrix whose transpose is moved so."""

FEW = 8
"""Columns or rows that are few: a thread has a word of each in its registers."""

GROUPS = 8
"""Rows of words in each of those of a tile; half as many if they are more than half of the few."""


class Words(NamedTuple):
    """How a tile is moved in words.

    Args:
        way: which of the ways.
        sizes: units along r, b, a and c.
        warps: groups of 32 threads.
        registers: the most that a thread has; 0 if Triton may choose.
    """

    way: int
    sizes: Four
    warps: int
    registers: int = 0


def words_of(
    axes: Sequence[Loop], run: int, unit: int, begins: tuple[Sequence[int], Sequence[int]]
) -> Words | None:
    """How a copy is moved in words, or None where it is not.

    Args:
        axes: r, b, a and c, with strides in bytes.
        run: bytes that lie side by side on both sides.
        unit: bytes of an element.
        begins: what divides addresses where rows and columns begin together, on either side.

    >>> square = (1, 0, 0), (4091, 1021, 1), (1021, 1, 4091), (1, 1, 1)
    >>> words_of(square, 1, 1, ([1], [1]))
    Words(way=1, sizes=(1, 248, 124, 1), warps=8, registers=64)
    >>> channels = (1, 0, 0), (4091, 3, 1), (3, 1, 4091), (1, 1, 1)
    >>> words_of(channels, 1, 1, ([1], [1]))
    Words(way=2, sizes=(1, 1984, 3, 1), warps=1, registers=0)
    """
    _, b, a, _ = axes
    if not (run == unit == a[1] == b[2] and unit in SHIFTS):
        return None
    each, row = WORD // unit, ROW * WORD // unit
    if 2 * a[0] >= row and b[0] >= row and 0 < a[2] < FAR and 0 < b[1] < FAR:
        read, left_out, warps, registers = SHIFTS[unit]
        sizes = 1, (ROW - left_out) * each, (ROW - 1) * read // unit, 1
        return Words(SHIFTED, sizes, warps, registers)
    side = 2 if b[0] < a[0] else 1  # where they are a strip
    few, many = (b, a) if side == 2 else (a, b)
    count = few[0]
    # If it is odd, both an element and a word begin at one of the strip's next few.
    meet = count % 2 or math.gcd(WORD, *begins[side - 1]) == WORD
    if (
        unit < SHARED
        and 1 < count <= FEW
        and many[0] >= row
        and many[side] == count * unit
        and meet
    ):
        length = (ROW - 1) * each * (GROUPS if 2 * count <= FEW else GROUPS // 2)
        if side == 2:
            return Words(FEW_ROWS, (1, count, length, 1), 1)
        return Words(FEW_COLUMNS, (1, length, count, 1), 1)
    return None
