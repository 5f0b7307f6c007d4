"""Shift: the Triton kernel's way to transpose narrow elements whose rows begin within words.

A row of odd length begins somewhere within a word, and so does the next one elsewhere. Moved one by
one, its elements would each take an access of their own. So rows are read in whole words, from the
one in which a tile begins, and put together from neighbours. A few words of as many rows are then
transposed by every thread, and the tile through shared memory. Its new rows are put together from
neighbours again, as the words of the output have them, and written.

Neighbours are other threads' words, which `gather` fetches by shuffles: to read them twice would
take the second cache more than the rest does. A tile's first and last word in a row of the output
may belong to other rows too. Those at the ends of a row are written element by element.
"""

from __future__ import annotations

import triton
import triton.language as tl

from xlayout_triton import chain
from xlayout_triton.table import SIZES, STRIDES, placed, three, unit_of
from xlayout_triton.tile import READ_WORD, ROW, WRITE_WORD

__all__ = ["shift_tile"]

_ROW = tl.constexpr(ROW)
_READ = tl.constexpr(READ_WORD)
_WRITE = tl.constexpr(WRITE_WORD)


@triton.jit
def _both(low, high, bits):
    # A word that begins so many bits into two of them; fewer than one has.
    LAST: tl.constexpr = low.dtype.primitive_bitwidth - 1
    bits = bits.to(low.dtype)
    return (low >> bits) | ((high << 1) << (bits ^ LAST))


@triton.constexpr_function
def _every_other(part, bits):
    # The bits of every other part of a word.
    return sum(((1 << part) - 1) << at for at in range(0, bits, 2 * part))


@triton.jit
def _turned(words, PART: tl.constexpr):
    # As many words as each has elements, transposed: halves change places, then halves of halves.
    COUNT: tl.constexpr = len(words)
    if COUNT > 1:
        HALF: tl.constexpr = PART // 2
        MASK: tl.constexpr = _every_other(HALF, words[0].dtype.primitive_bitwidth)
        low = ()
        high = ()
        for k in tl.static_range(COUNT // 2):
            x = words[k]
            y = words[k + COUNT // 2]
            low += ((x & MASK) | ((y & MASK) << HALF),)
            high += (((x >> HALF) & MASK) | (((y >> HALF) & MASK) << HALF),)
        return _turned(low, HALF) + _turned(high, HALF)
    else:  # noqa: RET505 -- or it would be compiled after the return above, too
        return words


@triton.jit
def _stacked(xs):
    # Tensors along axes behind theirs: one of two for each bit of their number.
    COUNT: tl.constexpr = len(xs)
    if COUNT == 1:
        return xs[0]
    else:  # noqa: RET505 -- as above
        even = ()
        odd = ()
        for k in tl.static_range(COUNT // 2):
            even += (xs[2 * k],)
            odd += (xs[2 * k + 1],)
        return tl.join(_stacked(even), _stacked(odd))


@triton.jit
def _columns(read, row, rows, step, left, FIRST_ROW: tl.constexpr, COUNT: tl.constexpr):
    # Reads COUNT rows, as many as a word has elements, from FIRST_ROW on, as words that begin with
    # the tile's columns. Transposed, they are words down each of a word's columns.
    word = tl.arange(0, _ROW)[None, :]
    words = ()
    for k in tl.static_range(COUNT):
        number = row + (FIRST_ROW + k)
        begin = read + number.to(tl.int64) * step
        within = (begin & (_READ - 1)).to(tl.int32)
        where = (begin - within).to(tl.pointer_type(tl.uint32)) + word
        here = tl.load(where, (number < rows) & (word * _READ < left + within))
        after = tl.broadcast_to(tl.minimum(word + 1, _ROW - 1), here.shape)
        words += (_both(here, tl.gather(here, after, 1), within * 8),)
    return _turned(words, _READ * 8)


@triton.jit
def shift_tile(piece, number, source, target, LINK: tl.constexpr, TILE: tl.constexpr):
    """Transposes one tile of a piece, as `copy` does, but for the words it is moved in."""
    B: tl.constexpr = TILE.sizes[1]
    A: tl.constexpr = TILE.sizes[2]
    WIDTH: tl.constexpr = TILE.unit
    P: tl.constexpr = _READ // WIDTH  # elements of a word that is read
    Q: tl.constexpr = _WRITE // WIDTH  # and of one that is written
    read, write, r, b, a, _ = placed(piece, number, source // WIDTH, target // WIDTH)
    _, n_b, n_a = three(piece + SIZES)
    x_r, x_b, _ = three(piece + STRIDES)
    z_r, z_a, _ = three(piece + STRIDES + 3)
    r, a0, b0 = r.to(tl.int64), a.to(tl.int64) * A, b.to(tl.int64) * B
    columns = tl.minimum(n_a - a0, A).to(tl.int32)
    rows = tl.minimum(n_b - b0, B + Q).to(tl.int32)
    # Addresses and strides in bytes from here on.
    read = (read + r * x_r + b0 * x_b + a0) * WIDTH
    write = (write + r * z_r + a0 * z_a + b0) * WIDTH
    x_b *= WIDTH
    z_a *= WIDTH
    chain.wait(LINK)

    row = tl.arange(0, _ROW)[:, None] * Q
    low = _columns(read, row, rows, x_b, columns * WIDTH, 0, P)
    high = _columns(read, row, rows, x_b, columns * WIDTH, P, P)
    words = ()
    for k in tl.static_range(P):
        words += (low[k].to(tl.uint64) | (high[k].to(tl.uint64) << 8 * _READ),)
    made = tl.reshape(_stacked(words), (_ROW, _ROW, P))
    made = tl.reshape(tl.permute(made, (1, 2, 0)), (_ROW * P, _ROW))

    column = tl.arange(0, _ROW * P)[:, None]
    word = tl.arange(0, _ROW)[None, :]
    begin = write + column * z_a
    within = (begin & (_WRITE - 1)).to(tl.int32)
    before = tl.gather(made, tl.broadcast_to(tl.maximum(word - 1, 0), made.shape), 1)
    shifted = _both(before, made, (-8 * within) & (8 * _WRITE - 1))
    made = tl.where(within == 0, made, shifted)
    start = word * Q - within // WIDTH  # the row that a word begins with
    to = (begin - within).to(tl.pointer_type(tl.uint64)) + word
    tl.store(to, made, (column < columns) & (start >= 0) & (start + Q <= rows))

    k = tl.arange(0, Q)[None, :]
    if b == 0:
        ends = (column < columns) & (k < Q - within // WIDTH)
        _copy_elements(read, begin, k, column, x_b, ends, TILE)
    if rows < B + Q:
        last = (rows + within // WIDTH) // Q * Q - within // WIDTH + k
        _copy_elements(read, begin, last, column, x_b, (column < columns) & (last < rows), TILE)


@triton.jit
def _copy_elements(read, begin, row, column, step, which, TILE: tl.constexpr):
    # Elements of columns that `begin` somewhere, one by one.
    POINTER: tl.constexpr = tl.pointer_type(unit_of(TILE))
    where = (read + row.to(tl.int64) * step + column * TILE.unit).to(POINTER)
    tl.store((begin + row * TILE.unit).to(POINTER), tl.load(where, which), which)
