"""Words: which copies of narrow elements are moved in words that rows share, and how.

Rows that begin anywhere within a word cannot be moved in vectors. Two kinds of copies are moved in
words all the same, which are put together from two of their neighbours:

    SHIFTED   a transpose with long rows on both sides, as `shift` does it
    NARROW    a transpose of a few columns, as the channels of images, as `narrow` does it

Nothing here needs Triton or a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from xlayout_triton.shape import LINE, Four
from xlayout_triton.side import FAR, Loop

__all__ = ["NARROW", "ROW", "SHARED", "SHIFTED", "VECTORS", "WORD", "Words", "words_of"]

VECTORS, SHIFTED, NARROW = range(3)
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


SHIFTS = {1: Shift(4, 1, 8, 80), 2: Shift(8, 4, 8, 64), 4: Shift(8, 4, 4, 96)}
"""Bytes of an element -> what is fastest on an H200 (docs/adr/0043-bytes-by-permutes.md)."""

MOST_COLUMNS = 8
"""Of a narrow transpose: a thread has a word of each in its registers."""

NARROW_ROWS = 8
"""Rows of words of a narrow tile in each of its columns; half of them where these are many."""


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


def words_of(axes: Sequence[Loop], run: int, unit: int, begins: Sequence[int]) -> Words | None:
    """How a copy is moved in words, or None where it is not.

    Args:
        axes: r, b, a and c, with strides in bytes.
        run: bytes that lie side by side on both sides.
        unit: bytes of an element.
        begins: what divides the addresses where the first rows of the input may begin.

    >>> square = (1, 0, 0), (4091, 1021, 1), (1021, 1, 4091), (1, 1, 1)
    >>> words_of(square, 1, 1, [1])
    Words(way=1, sizes=(1, 248, 124, 1), warps=8, registers=80)
    >>> channels = (1, 0, 0), (4091, 3, 1), (3, 1, 4091), (1, 1, 1)
    >>> words_of(channels, 1, 1, [1])
    Words(way=2, sizes=(1, 1984, 3, 1), warps=1, registers=0)
    """
    _, b, a, _ = axes
    if not (run == unit == a[1] == b[2] and unit in SHIFTS) or b[0] * unit < ROW * WORD:
        return None
    each = WORD // unit
    if a[0] * unit >= LINE and 0 < a[2] < FAR and 0 < b[1] < FAR:
        read, left_out, warps, registers = SHIFTS[unit]
        sizes = 1, (ROW - left_out) * each, (ROW - 1) * read // unit, 1
        return Words(SHIFTED, sizes, warps, registers)
    columns = a[0]
    # If their number is odd, both an element and a word begin at one of the next few rows.
    meet = columns % 2 or math.gcd(WORD, *begins) == WORD
    if unit < SHARED and b[1] == columns * unit and 1 < columns <= MOST_COLUMNS and meet:
        rows = NARROW_ROWS if 2 * columns <= MOST_COLUMNS else NARROW_ROWS // 2
        return Words(NARROW, (1, (ROW - 1) * each * rows, columns, 1), 1)
    return None
