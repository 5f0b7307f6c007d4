"""Narrow: the Triton kernel's way to transpose a few columns of narrow elements, as of images.

Such rows are one run of memory, whose words hold elements of all columns in turn. A thread reads as
many words as there are columns, and has a word of each. The results' rows may begin anywhere within
a word: their words are put together from neighbours, as in `shift`, and those at the ends of a row
are written element by element.

The words that are read begin at one of the first few rows, where an element and a word do.
"""

from __future__ import annotations

import triton
import triton.language as tl

from xlayout_triton import chain
from xlayout_triton.permute import joined, permuted
from xlayout_triton.table import SIZES, STRIDES, placed, unit_of
from xlayout_triton.words import ROW, WORD

__all__ = ["narrow_tile"]

_ROW = tl.constexpr(ROW)
_WORD = tl.constexpr(WORD)


@triton.constexpr_function
def _places(tile, column, half):
    # Where a thread's words have the four bytes of half a word of a column.
    unit, columns = tile.unit, tile.sizes[2]
    wanted = [4 * half + k for k in range(4)]
    return tuple([(byte // unit * columns + column) * unit + byte % unit for byte in wanted])


@triton.constexpr_function
def _sources(places):
    # The halves of a thread's words that hold them: two at least, because columns take turns.
    return tuple(sorted({place // 4 for place in places}))


@triton.constexpr_function
def _digits(places, low, high):
    # Which bytes `permuted` takes of two halves. Those that are in neither it takes of the first,
    # in their order: there they are already, or they are put there later.
    begin = {low: 0, high: 4}
    taken = [begin[p // 4] + p % 4 if p // 4 in begin else k for k, p in enumerate(places)]
    return sum([digit << 4 * k for k, digit in enumerate(taken)])


@triton.jit
def _half(words, COLUMN: tl.constexpr, HALF: tl.constexpr, TILE: tl.constexpr):
    # Half a word of a column's elements.
    PLACES: tl.constexpr = _places(TILE, COLUMN, HALF)
    FROM: tl.constexpr = _sources(PLACES)
    made = permuted(words[FROM[0]], words[FROM[1]], _digits(PLACES, FROM[0], FROM[1]))
    for k in tl.static_range(2, len(FROM)):
        made = permuted(made, words[FROM[k]], _digits(PLACES, None, FROM[k]))
    return made


@triton.jit
def narrow_tile(piece, number, source, target, LINK: tl.constexpr, TILE: tl.constexpr):
    """Transposes one tile of a piece, as `copy` does, but for the words it is moved in."""
    B: tl.constexpr = TILE.sizes[1]
    COLUMNS: tl.constexpr = TILE.sizes[2]
    WIDTH: tl.constexpr = TILE.unit
    Q: tl.constexpr = _WORD // WIDTH  # elements of a word
    read, write, r, b, _, _ = placed(piece, number, source // WIDTH, target // WIDTH)
    r, n_b = r.to(tl.int64), tl.load(piece + SIZES + 1)
    read += r * tl.load(piece + STRIDES)
    # COLUMNS is its own inverse modulo 8, if it is odd; if not, `read` is a multiple of Q.
    skipped = (-read * COLUMNS) & (Q - 1)
    b0 = b.to(tl.int64) * B + skipped
    rows = tl.minimum(n_b - b0, B + Q).to(tl.int32)
    # Addresses and strides in bytes from here on.
    read = (read + b0 * COLUMNS) * WIDTH
    write = (write + r * tl.load(piece + STRIDES + 3) + b0) * WIDTH
    z_a = tl.load(piece + STRIDES + 4) * WIDTH
    chain.wait(LINK)
    if (b > 0) & (rows == B + Q):
        _narrow(read, write, b, rows, skipped, z_a, TILE, True)
    else:
        _narrow(read, write, b, rows, skipped, z_a, TILE, False)


@triton.jit
def _narrow(read, write, b, rows, skipped, z_a, TILE: tl.constexpr, WHOLE: tl.constexpr):
    # Transposes a tile of so many rows, of which a WHOLE one has more on both sides.
    B: tl.constexpr = TILE.sizes[1]
    COLUMNS: tl.constexpr = TILE.sizes[2]
    WIDTH: tl.constexpr = TILE.unit
    Q: tl.constexpr = _WORD // WIDTH
    FEW: tl.constexpr = B // Q // (_ROW - 1)
    # Threads of a warp are the first axis, so that Triton finds the same layout for both sides.
    word = tl.arange(0, _ROW)[:, None]
    place = tl.arange(0, FEW)[None, :] * (_ROW - 1) + word
    others = tl.broadcast_to(tl.maximum(word - 1, 0), place.shape)
    words = ()
    for k in tl.static_range(COLUMNS):
        at = place * COLUMNS + k
        where = read.to(tl.pointer_type(tl.uint64)) + at
        inside = None if WHOLE else at * _WORD < rows * (COLUMNS * WIDTH)
        here = tl.load(where, inside)
        words += (here.to(tl.uint32), (here >> 32).to(tl.uint32))
    for k in tl.static_range(COLUMNS):
        low, high = _half(words, k, 0, TILE), _half(words, k, 1, TILE)
        made = low.to(tl.uint64) | (high.to(tl.uint64) << 32)
        begin = write + k * z_a
        beyond = -begin.to(tl.int32) & (_WORD - 1)  # bytes from there to where a word begins
        to = ((begin - 1) & -_WORD).to(tl.pointer_type(tl.uint64)) + place
        within = (_WORD - beyond) // WIDTH
        whole = tl.broadcast_to(word > 0, place.shape)
        if not WHOLE:
            whole &= place * Q - within + Q <= rows
        tl.store(to, joined(tl.gather(made, others, 0), made, beyond), whole)
        if not WHOLE:
            end = tl.arange(0, 2 * Q)
            if b == 0:
                row = end - skipped
                ends = (row < Q - within) & (row < rows)
                _copy_elements(read + k * WIDTH, begin, row, ends, TILE)
            if rows < B + Q:
                row = (rows + within) // Q * Q - within + end
                ends = (row < rows) & (row >= 0)
                _copy_elements(read + k * WIDTH, begin, row, ends, TILE)


@triton.jit
def _copy_elements(read, begin, row, which, TILE: tl.constexpr):
    # Elements of one column, one by one.
    POINTER: tl.constexpr = tl.pointer_type(unit_of(TILE))
    where = (read + row * (TILE.sizes[2] * TILE.unit)).to(POINTER)
    tl.store((begin + row * TILE.unit).to(POINTER), tl.load(where, which), which)
