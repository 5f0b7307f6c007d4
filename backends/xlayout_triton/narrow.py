"""Narrow: the Triton kernel's way to transpose narrow elements of which one side has only a few.

A few columns, as the channels of an image, are one run of memory, a strip, whose words hold
elements of all columns in turn. A thread reads as many words as there are columns, and has a word
of each. The results' rows may begin anywhere within a word: their words are put together from
neighbours, as in `shift`.

A few rows are the way back. Their words are put together from neighbours when they are read. A
thread then has as many words of the strip, which are dealt among those of a warp, so that words
that lie side by side are written together.

The words of a strip begin at one of its first few rows or columns, where an element and a word do.
What is before, and what is behind the last of any row, is moved element by element.
"""

from __future__ import annotations

import triton
import triton.language as tl

from xlayout_triton import chain
from xlayout_triton.permute import joined, permuted
from xlayout_triton.table import SIZES, STRIDES, placed, three, unit_of
from xlayout_triton.words import FEW_ROWS, ROW, WORD

__all__ = ["narrow_tile"]

_ROW = tl.constexpr(ROW)
_WORD = tl.constexpr(WORD)
_FEW_ROWS = tl.constexpr(FEW_ROWS)


@triton.constexpr_function
def _places(few, unit, number, half, to_strip):
    # Where a thread's words have the four bytes of half a word: of the strip, or of a row.
    found = []
    for byte in range(4 * half, 4 * half + 4):
        at, rest = byte // unit, byte % unit
        if to_strip:
            at += number * (WORD // unit)
            found.append(at % few * WORD + at // few * unit + rest)
        else:
            found.append((at * few + number) * unit + rest)
    return tuple(found)


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
def _half(halves, PLACES: tl.constexpr):
    # Half a word, from the halves of others.
    FROM: tl.constexpr = _sources(PLACES)
    made = permuted(halves[FROM[0]], halves[FROM[1]], _digits(PLACES, FROM[0], FROM[1]))
    for k in tl.static_range(2, len(FROM)):
        made = permuted(made, halves[FROM[k]], _digits(PLACES, None, FROM[k]))
    return made


@triton.jit
def _exchanged(halves, UNIT: tl.constexpr, TO_STRIP: tl.constexpr):
    # Words of a strip from the halves of one of each of its rows, or the way back.
    FEW: tl.constexpr = len(halves) // 2
    made = ()
    for k in tl.static_range(FEW):
        low = _half(halves, _places(FEW, UNIT, k, 0, TO_STRIP))
        high = _half(halves, _places(FEW, UNIT, k, 1, TO_STRIP))
        made += (low.to(tl.uint64) | (high.to(tl.uint64) << 32),)
    return made


@triton.jit
def _skipped(strip, FEW: tl.constexpr, Q: tl.constexpr):
    # How many of the first rows or columns of a strip are before a word and an element begin. FEW
    # is its own inverse modulo 8, if it is odd; if not, `strip` is a multiple of Q elements.
    return (-strip * FEW) & (Q - 1)


@triton.jit
def narrow_tile(piece, number, source, target, LINK: tl.constexpr, TILE: tl.constexpr):
    """Transposes one tile of a piece, as `copy` does, but for the words it is moved in."""
    # The strides of a side begin with that of r. On the rows' side, what they lie apart is next.
    TO_STRIP: tl.constexpr = TILE.way == _FEW_ROWS
    ROWS: tl.constexpr = STRIDES if TO_STRIP else STRIDES + 3
    STRIP: tl.constexpr = STRIDES + 3 if TO_STRIP else STRIDES
    FEW: tl.constexpr = TILE.sizes[1 if TO_STRIP else 2]
    LENGTH: tl.constexpr = TILE.sizes[2 if TO_STRIP else 1]
    WIDTH: tl.constexpr = TILE.unit
    Q: tl.constexpr = _WORD // WIDTH  # elements of a word
    read, write, r, b, a, _ = placed(piece, number, source // WIDTH, target // WIDTH)
    strip, rows, first = (write, read, a) if TO_STRIP else (read, write, b)
    apart_r, apart, _ = three(piece + ROWS)
    strip += r.to(tl.int64) * tl.load(piece + STRIP)
    skipped = _skipped(strip, FEW, Q)
    begin = first.to(tl.int64) * LENGTH + skipped
    n = tl.load(piece + SIZES + (2 if TO_STRIP else 1))
    left = tl.minimum(n - begin, LENGTH + Q).to(tl.int32)
    # Addresses and strides in bytes from here on.
    strip = (strip + begin * FEW) * WIDTH
    rows = (rows + r.to(tl.int64) * apart_r + begin) * WIDTH
    chain.wait(LINK)
    if (first > 0) & (left == LENGTH + Q):
        _turn(strip, rows, apart * WIDTH, first, left, skipped, TO_STRIP, TILE, True)
    else:
        _turn(strip, rows, apart * WIDTH, first, left, skipped, TO_STRIP, TILE, False)


@triton.jit
def _turn(
    strip, rows, apart, first, left, skipped,
    TO_STRIP: tl.constexpr, TILE: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    # Moves a strip to rows that lie `apart`, or them to it. A WHOLE tile has more on both sides.
    if TO_STRIP:
        _rows_to_columns(strip, rows, apart, first, left, skipped, TILE, WHOLE)
    else:
        _columns_to_rows(strip, rows, apart, first, left, skipped, TILE, WHOLE)


@triton.jit
def _columns_to_rows(
    strip, rows, apart, first, left, skipped, TILE: tl.constexpr, WHOLE: tl.constexpr
):  # fmt: skip
    # Reads a strip and writes rows.
    FEW: tl.constexpr = TILE.sizes[2]
    WIDTH: tl.constexpr = TILE.unit
    Q: tl.constexpr = _WORD // WIDTH
    GROUPS: tl.constexpr = TILE.sizes[1] // Q // (_ROW - 1)
    # Threads of a warp are the first axis, along which words of the rows adjoin. Those of the strip
    # do so along neither axis, and then Triton 3.6 prefers the first one, but 3.7 the last: words
    # would change hands in shared memory. Their halves adjoin along the first, two in an access.
    word = tl.arange(0, _ROW)[:, None]
    half = tl.arange(0, 2 * _ROW)[:, None]
    group = tl.arange(0, GROUPS)[None, :] * (_ROW - 1)
    place = group + word
    before = tl.broadcast_to(tl.maximum(word - 1, 0), place.shape)
    origin = tl.multiple_of(strip.to(tl.pointer_type(tl.uint32)), _WORD)
    halves = ()
    for k in tl.static_range(FEW):
        at = (group + half // 2) * FEW + k
        inside = None if WHOLE else at * _WORD < left * (FEW * WIDTH)
        both = tl.load(origin + (2 * at + half % 2), inside)
        halves += tl.split(both.reshape(_ROW, 2, GROUPS).permute(0, 2, 1))
    made = _exchanged(halves, WIDTH, False)
    for k in tl.static_range(FEW):
        begin = rows + k * apart
        beyond = -begin.to(tl.int32) & (_WORD - 1)  # bytes from there to where a word begins
        to = ((begin - 1) & -_WORD).to(tl.pointer_type(tl.uint64)) + place
        within = (_WORD - beyond) // WIDTH
        whole = tl.broadcast_to(word > 0, place.shape)
        if not WHOLE:
            whole &= place * Q - within + Q <= left
        tl.store(to, joined(tl.gather(made[k], before, 0), made[k], beyond), whole)
        if not WHOLE:
            end = tl.arange(0, 2 * Q)
            if first == 0:
                row = end - skipped
                _copy_column(strip + k * WIDTH, begin, row, row < Q - within, TILE)
            if left < TILE.sizes[1] + Q:
                row = (left + within) // Q * Q - within + end
                ends = (row < left) & (row >= 0)
                _copy_column(strip + k * WIDTH, begin, row, ends, TILE)


@triton.jit
def _copy_column(strip, column, row, which, TILE: tl.constexpr):
    # Elements of a column by the numbers of their rows, one by one.
    POINTER: tl.constexpr = tl.pointer_type(unit_of(TILE))
    values = tl.load((strip + row * (TILE.sizes[2] * TILE.unit)).to(POINTER), which)
    tl.store((column + row * TILE.unit).to(POINTER), values, which)


@triton.jit
def _rows_to_columns(
    strip, rows, apart, first, left, skipped, TILE: tl.constexpr, WHOLE: tl.constexpr
):  # fmt: skip
    # Reads rows and writes a strip.
    FEW: tl.constexpr = TILE.sizes[1]
    WIDTH: tl.constexpr = TILE.unit
    Q: tl.constexpr = _WORD // WIDTH
    GROUPS: tl.constexpr = TILE.sizes[2] // Q // (_ROW - 1)
    word = tl.arange(0, _ROW)[:, None]
    group = tl.arange(0, GROUPS)[None, :] * (_ROW - 1)
    after = tl.broadcast_to(tl.minimum(word + 1, _ROW - 1), (_ROW, GROUPS))
    halves = ()
    for k in tl.static_range(FEW):
        begin = rows + k * apart
        within = begin.to(tl.int32) & (_WORD - 1)
        where = (begin & -_WORD).to(tl.pointer_type(tl.uint64)) + (group + word)
        inside = None if WHOLE else (group + word) * _WORD < left * WIDTH + within
        here = tl.load(where, inside)
        made = joined(here, tl.gather(here, after, 0), within)
        halves += (made.to(tl.uint32), (made >> 32).to(tl.uint32))
    words = _exchanged(halves, WIDTH, True)
    for k in tl.static_range(FEW):
        at = k * _ROW + word  # of the words of a group in the strip
        dealt = _dealt(words, at, GROUPS)
        whole = tl.broadcast_to(at < (_ROW - 1) * FEW, dealt.shape)
        at = group * FEW + at
        if not WHOLE:
            whole &= (at + 1) * _WORD <= left * (FEW * WIDTH)
        tl.store(strip.to(tl.pointer_type(tl.uint64)) + at, dealt, whole)
    if not WHOLE:
        end = tl.arange(0, _WORD * Q)
        if first == 0:
            before = skipped * WIDTH
            _copy_strip(rows - before, apart, strip - before * FEW, end, end < skipped * FEW, TILE)
        if left < TILE.sizes[2] + Q:
            last = left * FEW // Q * Q + end
            _copy_strip(rows, apart, strip, last, (last < left * FEW) & (last >= 0), TILE)


@triton.jit
def _dealt(words, at, GROUPS: tl.constexpr):
    # Words of a strip by their numbers, of which each thread holds as many, one after another.
    FEW: tl.constexpr = len(words)
    holder = tl.broadcast_to(at // FEW, (_ROW, GROUPS))
    made = tl.gather(words[0], holder, 0)
    for k in tl.static_range(1, FEW):
        made = tl.where(at % FEW == k, tl.gather(words[k], holder, 0), made)
    return made


@triton.jit
def _copy_strip(rows, apart, strip, at, which, TILE: tl.constexpr):
    # Elements of a strip by their numbers, one by one.
    FEW: tl.constexpr = TILE.sizes[1]
    POINTER: tl.constexpr = tl.pointer_type(unit_of(TILE))
    row, column = at % FEW, at // FEW
    values = tl.load((rows + row * apart + column * TILE.unit).to(POINTER), which)
    tl.store((strip + at * TILE.unit).to(POINTER), values, which)
