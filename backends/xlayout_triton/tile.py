"""Tile: how the Triton kernel cuts one strided copy into tiles, and with which constants.

A tile spans four axes, r, b, a and c, each a power of two long:

    c   the run: what lies side by side in the input and in the output, or else another axis
    a   the axis that comes next in the input
    b   the axis that comes next in the output
    r   one axis more, where the others do not fill a tile

The kernel reads a tile in the order (r, b, a, c) and writes it in the order (r, a, b, c), if
neither r nor c continues a or b (see `shape`). On each side the last axes are one run of memory, as
far as their strides chain, and vectors of up to 16 bytes move it. A transpose is (1, b, a, 1), a
zip (1, 2, a, 1) whose output is one run, a row block (1, b, 1, c). Axes that are left are counted
through by the number of the tile.

Nothing here needs Triton or a GPU: integers in, integers out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from xlayout_triton.shape import LINE, NO_AXIS, USUAL, Four, shape_of
from xlayout_triton.side import VECTOR, Loop, chained, side_of
from xlayout_triton.words import SHARED, VECTORS, Words, words_of

__all__ = [
    "COUNT",
    "LENGTHS",
    "LINE",
    "MOST_TILES",
    "OUTER",
    "SIZES",
    "STRIDES",
    "STRIP",
    "TILE",
    "VECTOR",
    "WORDS",
    "Cut",
    "Loop",
    "Tile",
    "cut",
]

STRIP = 1 << 12
"""Bytes of a tile of long runs: four vectors for each of 64 threads.

The sizes of tiles are what is fastest on an H200 (docs/adr/0033-tiles-on-hardware.md)."""

TILE = 1 << 15
"""Bytes of a tile of short rows, as of a transpose: 32 vectors for each of 64 threads."""

SMALL_TILE = 1 << 14
"""The same of a copy that is so small that others are launched with it, for half as many."""

SMALL = 1 << 23
"""Bytes below which a copy is."""

LONG = 1 << 10
"""Bytes from which a run within a tile is long."""

WIDEST = 8
"""Bytes of the widest integer."""

OUTER = 4
"""Axes that the number of a tile counts through."""

SCALARS = 1 << 13
"""Units of a tile of short rows where one side cannot be moved in vectors: 128 for each thread."""

STRIP_WARPS, WARPS, MORE_WARPS = 1, 2, 8
"""Groups of 32 threads for a tile of long runs, for others, and for one of scalars too wide for 128
to be in registers."""

MOST_TILES = 1 << 31
"""Tiles of a copy, and programs of a launch, that are too many to be counted."""

SIZES, STRIDES, LENGTHS, COUNT, WORDS = 26, 30, 36, 38, 39
"""Where some of the words of a cut are, and how many there are; see `Cut`."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a kernel is compiled for.

    Args:
        unit: bytes of the integer that elements are moved as.
        sizes: units along r, b, a and c.
        orders: of which of them its axes are, in the input's memory and in the output's.
        runs: how many axes are one run of memory, counted from the last, in the input and output.
        vectors: units that are moved at once, on either side.
        wide: whether positions within a tile need 64 bits.
        warps: groups of 32 threads that move it.
        way: how it is moved: in vectors, or in words that its rows share (see `words`).
        registers: the most that a thread has; 0 if Triton may choose.
    """

    unit: int
    sizes: Four
    orders: tuple[Four, Four]
    runs: tuple[int, int]
    vectors: tuple[int, int]
    wide: bool
    warps: int
    way: int = VECTORS
    registers: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of a whole tile."""
        return math.prod(self.sizes) * self.unit

    @property
    def options(self) -> dict[str, int]:
        """What Triton compiles its kernel with; 3.9 warns where nothing is said about fusion."""
        most = {"maxnreg": self.registers} if self.registers else {}
        return {"num_warps": self.warps, "num_stages": 1, "enable_fp_fusion": False, **most}


@dataclass(frozen=True, slots=True)
class Cut:
    """A strided copy in tiles.

    Args:
        tile: what the kernel is compiled for.
        count: how many tiles.
        reach: bytes of a tile that lie side by side in the input, and in the output.
        spans: the first byte and the one behind the last, of the input and of the output.
        words: what the kernel reads while it runs; offsets, strides and lengths of runs count
            vectors of their side. In this order: the two offsets; a digit (see `_digit`) for the
            tiles along c, b, a and r; a digit, the in stride and the out stride of each outer axis,
            the fastest first; `SIZES` of r, b, a and c; `STRIDES` of the first three axes of the
            input, then of the output, in the order of each; the `LENGTHS` of the two runs; `COUNT`.
    """

    tile: Tile
    count: int
    reach: tuple[int, int]
    spans: tuple[tuple[int, int], tuple[int, int]]
    words: tuple[int, ...]


@lru_cache(1 << 14)
def cut(
    start: int, to: int, loops: tuple[Loop, ...], itemsize: int, aligned: tuple[int, int]
) -> Cut | None:
    """A strided copy in tiles, or None for one with more axes or tiles than the kernel counts.

    Args:
        start: where the input begins, in elements.
        to: where the output begins.
        loops: the axes, in elements; none of them empty.
        itemsize: bytes of an element.
        aligned: powers of two that divide the address of the input and that of the output.

    >>> tile = cut(0, 0, ((4096, 1, 4096), (4096, 4096, 1)), 2, (16, 16)).tile
    >>> tile.sizes, tile.runs, tile.vectors
    ((1, 128, 128, 1), (2, 2), (8, 8))
    """
    run, axes = _in_bytes(loops, itemsize)
    steps = [step for _, *both in axes for step in both]
    offsets = start * itemsize, to * itemsize
    unit = math.gcd(WIDEST, run, *offsets, *steps, *aligned)
    tiled = partial(_tiled, axes, run // unit, unit, offsets, aligned)
    strip = tiled(STRIP // unit, STRIP_WARPS)
    if strip is None or strip.tile.sizes[2] == 1:
        return strip
    vector = min(strip.tile.vectors)
    if vector == 1 or vector * unit < SHARED:
        words = _words(axes, run, unit, offsets, aligned)
        if words is not None:
            return tiled(STRIP // unit, words.warps, words)
    if min(strip.reach) >= LONG:
        return strip
    if vector == 1 and unit < WIDEST:
        return tiled(SCALARS, MORE_WARPS if unit == 4 else WARPS)
    if run * math.prod(n for n, _, _ in axes) < SMALL:
        return tiled(SMALL_TILE // unit, STRIP_WARPS)
    return tiled(TILE // unit, WARPS)


def _words(
    axes: Sequence[Loop], run: int, unit: int, offsets: tuple[int, int], aligned: tuple[int, int]
) -> Words | None:
    """How axes with strides in bytes are moved in words, if they are."""
    four, *_ = shape_of(axes, run // unit, unit, STRIP // unit)
    others = [axis for axis in axes if axis not in four[1:3]]
    read, written = ([aligned[k], offsets[k], *[axis[k + 1] for axis in others]] for k in range(2))
    return words_of(four, run, unit, (read, written))


def _tiled(
    axes: Sequence[Loop],
    run: int,
    unit: int,
    offsets: tuple[int, int],
    aligned: tuple[int, int],
    room: int,
    warps: int,
    words: Words | None = None,
) -> Cut | None:
    """Axes with strides in bytes and a run in units, in tiles of up to `room` units or in words."""
    four, sizes, orders = shape_of(axes, run, unit, room)
    way, registers = VECTORS, 0
    if words is not None:
        way, sizes, registers, orders = words.way, words.sizes, words.registers, USUAL
    outer = [axis for axis in reversed(axes) if axis not in four]
    if len(outer) > OUTER:
        return None
    outer += [NO_AXIS] * (OUTER - len(outer))
    spanned = tuple(zip(four, sizes, strict=True))
    read, written = ([spanned[k] for k in order] for order in orders)
    reads, writes = partial(chained, 1, read, unit), partial(chained, 2, written, unit)
    chains = axes and way == VECTORS
    runs = (reads(padded=False)[0], writes(padded=False)[0]) if chains else (1, 1)
    reach = reads(padded=True)[1], writes(padded=True)[1]
    if orders[0] == orders[1]:  # nothing to turn, if the rows of both sides are the same
        runs = min(runs), min(runs)
    x = side_of(1, read, runs[0], outer, offsets[0], aligned[0], unit)
    z = side_of(2, written, runs[1], outer, offsets[1], aligned[1], unit)
    tiles = [-(-axis[0] // size) for axis, size in spanned]
    count = math.prod(tiles) * math.prod(n for n, _, _ in outer)
    if count >= MOST_TILES:
        return None
    table = [x.offset, z.offset]
    for k in (3, 1, 2, 0):
        table += _digit(tiles[k])
    for (n, _, _), step, by in zip(outer, x.outer, z.outer, strict=True):
        table += [*_digit(n), step, by]
    table += [*(axis[0] for axis in four), *x.strides, *z.strides, x.length, z.length]
    vectors, wide = (x.vector, z.vector), x.wide or z.wide
    tile = Tile(unit, sizes, orders, runs, vectors, wide, warps, way, registers)
    spans = _span(1, axes, run * unit, offsets[0]), _span(2, axes, run * unit, offsets[1])
    return Cut(tile, count, reach, spans, (*table, count))


def _span(side: int, axes: Sequence[Loop], run: int, offset: int) -> tuple[int, int]:
    """The first byte and the one behind the last, of the input (1) or the output (2)."""
    steps = [(axis[0] - 1) * axis[side] for axis in axes]
    first, last = (offset + sum(f(0, step) for step in steps) for f in (min, max))
    return first, last + run


def _digit(n: int) -> tuple[int, int]:
    """A count, and what divides by it: x // n is (x + high half of x * low) >> high, x < 2**31.

    A division takes forty instructions where this takes five. (Granlund and Montgomery, 1994.)

    >>> n, magic = _digit(7)
    >>> (100 + (100 * (magic & 0xFFFFFFFF) >> 32)) >> (magic >> 32)
    14
    """
    shift = (n - 1).bit_length()
    return n, (((1 << shift) - n << 32) // n + 1) | shift << 32


def _in_bytes(loops: Sequence[Loop], itemsize: int) -> tuple[int, list[Loop]]:
    """Bytes of the run, and the other axes by out stride, largest first, with strides in bytes."""
    axes: list[Loop] = []
    for n, x, z in sorted((loop for loop in loops if loop[0] != 1), key=_by_out_stride):
        if axes and axes[-1][1:] == (n * x * itemsize, n * z * itemsize):
            axes[-1] = (axes[-1][0] * n, x * itemsize, z * itemsize)
        else:
            axes.append((n, x * itemsize, z * itemsize))
    if axes and axes[-1][1:] == (itemsize, itemsize):
        return axes.pop()[0] * itemsize, axes
    return itemsize, axes


def _by_out_stride(loop: Loop) -> tuple[int, int]:
    return -abs(loop[2]), -abs(loop[1])
