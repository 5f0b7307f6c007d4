"""Table: what a program of the Triton kernels reads in a plan's table, whose words `tile` lists."""

from __future__ import annotations

import triton
import triton.language as tl

from xlayout_triton import tile

__all__ = ["LENGTHS", "SIZES", "STRIDES", "located", "placed", "three", "unit_of"]

SIZES = tl.constexpr(tile.SIZES)
STRIDES = tl.constexpr(tile.STRIDES)
LENGTHS = tl.constexpr(tile.LENGTHS)
_COUNT = tl.constexpr(tile.COUNT)
_WORDS = tl.constexpr(tile.WORDS)


@triton.constexpr_function
def unit_of(tile):
    """The integer type that a tile is moved as."""
    return tl.dtype(f"uint{8 * tile.unit}")


@triton.jit
def located(table, first, jobs, group, SEVERAL: tl.constexpr):
    """Which piece a program has, where its words are, the tile's number, and if there is one."""
    number, which = tl.program_id(0), first.to(tl.int64)
    if SEVERAL:
        job = tl.load(table + jobs + number // group)
        which = job >> 32
        piece = table + which * _WORDS
        number = job.to(tl.int32) + number % group
        return which, piece, number, number < tl.load(piece + _COUNT)
    return which, table + which * _WORDS, number, True


@triton.jit
def placed(piece, number, read, write):
    """Both addresses moved to a tile but for its axes, and its numbers along r, b, a and c."""
    read += tl.load(piece)
    write += tl.load(piece + 1)
    rest = number.to(tl.uint32)
    c, rest = _digit(rest, piece + 2)
    b, rest = _digit(rest, piece + 4)
    a, rest = _digit(rest, piece + 6)
    r, rest = _digit(rest, piece + 8)
    for k in tl.static_range(4):
        at, rest = _digit(rest, piece + 10 + 4 * k)
        read += at.to(tl.int64) * tl.load(piece + 12 + 4 * k)
        write += at.to(tl.int64) * tl.load(piece + 13 + 4 * k)
    return read, write, r, b, a, c


@triton.jit
def _digit(rest, at):
    # Remainder and quotient of a division by a count, as a multiplication by its magic number.
    n, magic = tl.load(at).to(tl.uint32), tl.load(at + 1)
    high = tl.umulhi(rest, magic.to(tl.uint32))
    quotient = (high + rest) >> (magic >> 32).to(tl.uint32)
    return rest - quotient * n, quotient


@triton.jit
def three(at):
    """Three words."""
    return tl.load(at), tl.load(at + 1), tl.load(at + 2)
