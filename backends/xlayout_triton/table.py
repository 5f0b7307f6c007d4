"""Table: what a program of the Triton kernels reads in a plan's table, whose words `tile` lists."""

from __future__ import annotations

import triton
import triton.language as tl

from xlayout_triton.plan import WORDS

__all__ = ["located", "placed", "three"]

_WORDS = tl.constexpr(WORDS)


@triton.jit
def located(table, first, jobs, group, SEVERAL: tl.constexpr):
    """The number of a program's piece, where its words are, the tile, and whether there is one."""
    tile, number = tl.program_id(0), first.to(tl.int64)
    if SEVERAL:
        job = tl.load(table + jobs + tile // group)
        number = job >> 32
        piece = table + number * _WORDS
        tile = job.to(tl.int32) + tile % group
        return number, piece, tile, tile < tl.load(piece + 37)
    return number, table + number * _WORDS, tile, True


@triton.jit
def placed(piece, tile, read, write):
    """Both addresses moved to a tile but for its axes, and its numbers along r, b, a and c."""
    read += tl.load(piece)
    write += tl.load(piece + 1)
    rest = tile.to(tl.uint32)
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
