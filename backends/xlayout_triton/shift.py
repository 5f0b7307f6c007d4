"""Shift: the Triton kernel's way to transpose narrow elements whose rows begin within words.

A row of odd length begins somewhere within a word, and so does the next one elsewhere. Moved one by
one, its elements would each take an access of their own. So rows are read in whole words, from the
one in which a tile begins, and put together from neighbours. A few words of as many rows are then
transposed by every thread, and the tile through shared memory. Its new rows are put together from
neighbours again, as the words of the output have them, and written.

Neighbours are other threads' words, which `gather` fetches by shuffles: to read them twice would
take the second cache more than the rest does. A tile's first and last word in a row of the output
may belong to other rows too. Those at the ends of a row are written element by element.

Most tiles are whole. In these nothing is masked but the words that are left out: masks would be a
third of all instructions. All words are asked for before the first is waited for, in few registers,
so that many programs have many on their way.
"""

from __future__ import annotations

import triton
import triton.language as tl

from xlayout_triton import chain
from xlayout_triton.permute import funnel, joined, transposed
from xlayout_triton.table import SIZES, STRIDES, placed, three, unit_of
from xlayout_triton.words import ROW, WORD

__all__ = ["shift_tile"]

_ROW = tl.constexpr(ROW)
_WORD = tl.constexpr(WORD)


@triton.jit
def _apart(begin, number, step):
    # Addresses of rows: a product of 32 bits by 32 bits takes one instruction, and of 64 three.
    return begin + (number.to(tl.uint32).to(tl.uint64) * step.to(tl.uint32)).to(tl.int64)


@triton.jit
def _columns(words):
    # Words of as many rows as one that is written has elements, as words down their columns.
    if words[0].dtype.primitive_bitwidth == 32:
        return _turned(words)
    else:  # noqa: RET505 -- as below
        low = ()
        high = ()
        for k in tl.static_range(len(words)):
            low += (words[k].to(tl.uint32),)
            high += ((words[k] >> 32).to(tl.uint32),)
        return _turned(low) + _turned(high)


@triton.jit
def _turned(words):
    HALF: tl.constexpr = len(words) // 2
    low = ()
    high = ()
    for k in tl.static_range(HALF):
        low += (words[k],)
        high += (words[HALF + k],)
    low = transposed(low)
    high = transposed(high)
    made = ()
    for k in tl.static_range(HALF):
        made += (low[k].to(tl.uint64) | (high[k].to(tl.uint64) << 32),)
    return made


@triton.jit
def _stacked(xs):
    # Tensors along axes behind theirs: one of two for each bit of their number.
    COUNT: tl.constexpr = len(xs)
    if COUNT == 1:
        return xs[0]
    else:  # noqa: RET505 -- or it would be compiled after the return above, too
        even = ()
        odd = ()
        for k in tl.static_range(COUNT // 2):
            even += (xs[2 * k],)
            odd += (xs[2 * k + 1],)
        return tl.join(_stacked(even), _stacked(odd))


@triton.constexpr_function
def _read_word(tile):
    # Bytes of the words that it is read in.
    return tile.sizes[2] * tile.unit // (ROW - 1)


@triton.jit
def shift_tile(piece, number, source, target, LINK: tl.constexpr, TILE: tl.constexpr):
    """Transposes one tile of a piece, as `copy` does, but for the words it is moved in."""
    B: tl.constexpr = TILE.sizes[1]
    A: tl.constexpr = TILE.sizes[2]
    WIDTH: tl.constexpr = TILE.unit
    Q: tl.constexpr = _WORD // WIDTH  # elements of a word
    read, write, r, b, a, _ = placed(piece, number, source // WIDTH, target // WIDTH)
    _, n_b, n_a = three(piece + SIZES)
    x_r, x_b, _ = three(piece + STRIDES)
    z_r, z_a, _ = three(piece + STRIDES + 3)
    r, a0, b0 = r.to(tl.int64), a.to(tl.int64) * A, b.to(tl.int64) * B
    columns = tl.minimum(n_a - a0, A + _read_word(TILE) // WIDTH).to(tl.int32)
    rows = tl.minimum(n_b - b0, _ROW * Q).to(tl.int32)
    # Addresses and strides in bytes from here on.
    read = (read + r * x_r + b0 * x_b + a0) * WIDTH
    write = (write + r * z_r + a0 * z_a + b0) * WIDTH
    x_b *= WIDTH
    z_a *= WIDTH
    chain.wait(LINK)
    if (b > 0) & (rows == _ROW * Q) & (columns > A):
        _shift(read, write, b, rows, A, x_b, z_a, TILE, True)
    else:
        _shift(read, write, b, rows, tl.minimum(columns, A), x_b, z_a, TILE, False)


@triton.jit
def _shift(read, write, b, rows, columns, x_b, z_a, TILE: tl.constexpr, WHOLE: tl.constexpr):
    # Transposes a tile of so many rows and columns. A WHOLE one is not the first or the last row of
    # tiles, and not the last column.
    WIDTH: tl.constexpr = TILE.unit
    Q: tl.constexpr = _WORD // WIDTH
    READ: tl.constexpr = _read_word(TILE)
    LEFT_OUT: tl.constexpr = _ROW - TILE.sizes[1] // Q
    POINTER: tl.constexpr = tl.pointer_type(tl.uint64 if READ == 8 else tl.uint32)
    word = tl.arange(0, _ROW)[None, :]
    after = tl.broadcast_to(tl.minimum(word + 1, _ROW - 1), (_ROW, _ROW))
    # Q rows further, a row begins whole words further: within one, only k says where.
    group = tl.arange(0, _ROW)[:, None] * Q
    apart = _apart((word * READ).to(tl.int64), group, x_b)
    here = ()
    for k in tl.static_range(Q):
        begin = read + k * x_b
        where = tl.max_contiguous(((begin & -READ) + apart).to(POINTER), (1, _ROW))
        if WHOLE:
            here += (tl.load(where),)
        else:
            length = columns * WIDTH + (begin.to(tl.int32) & (READ - 1))
            here += (tl.load(where, (group + k < rows) & (word * READ < length)),)
    words = ()
    for k in tl.static_range(Q):  # not before all have been asked for
        within = (read + k * x_b).to(tl.int32) & (READ - 1)
        there = tl.gather(here[k], after, 1)
        words += (joined(here[k], there, within) if READ == 8 else funnel(here[k], there, within),)
    made = _stacked(_columns(words))
    P: tl.constexpr = READ // WIDTH
    made = tl.reshape(tl.permute(tl.reshape(made, (_ROW, _ROW, P)), (1, 2, 0)), (_ROW * P, _ROW))
    before = tl.gather(made, tl.broadcast_to(tl.maximum(word - 1, 0), made.shape), 1)

    # Likewise, columns that are as far from each other begin alike within what is left out.
    column = tl.arange(0, _ROW * P)[:, None]
    alike = column & (LEFT_OUT * Q - 1)
    begin = _apart(write, alike, z_a)
    beyond = -begin.to(tl.int32) & (_WORD - 1)  # bytes from there to where a word begins
    apart = _apart((word * _WORD).to(tl.int64), column - alike, z_a)
    to = (((begin - 1) & -_WORD) + apart).to(tl.pointer_type(tl.uint64))
    # Words are counted in groups of as many as are left out, from a byte or more before the tile.
    behind = ((begin - 1).to(tl.int32) & (LEFT_OUT * _WORD - 1)) + 1
    place = word + (behind - 1) // _WORD
    inside = (column < columns) & (place >= LEFT_OUT) & (place < _ROW)
    first = (LEFT_OUT * _WORD - behind) // WIDTH  # the row that the first of them begins with
    if not WHOLE:
        inside &= (place - LEFT_OUT + 1) * Q + first <= rows
    tl.store(tl.max_contiguous(to, (1, _ROW)), joined(before, made, beyond), inside)
    if not WHOLE:
        begin = _apart(write, column, z_a)
        k = tl.arange(0, LEFT_OUT * Q)[None, :]
        if b == 0:
            ends = (column < columns) & (k < first)
            _copy_elements(read, begin, k, column, x_b, ends, TILE)
        if rows < _ROW * Q:
            whole = tl.maximum(rows - first, 0) // Q
            last = first + whole * Q + k
            ends = (column < columns) & (last < rows) & (whole < TILE.sizes[1] // Q)
            _copy_elements(read, begin, last, column, x_b, ends, TILE)


@triton.jit
def _copy_elements(read, begin, row, column, step, which, TILE: tl.constexpr):
    # Elements of columns that `begin` somewhere, one by one.
    POINTER: tl.constexpr = tl.pointer_type(unit_of(TILE))
    where = (read + row.to(tl.int64) * step + column * TILE.unit).to(POINTER)
    tl.store((begin + row * TILE.unit).to(POINTER), tl.load(where, which), which)
