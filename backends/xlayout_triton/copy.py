"""Copy: the Triton kernel that moves strided copies between addresses, one tile a program.

It knows no arrays: `plan` writes a table of pieces, 40 numbers each, and says what a tile is. Loads
and stores are rows of memory, so that Triton gives each side the layout in which they coalesce, and
carries the values from one to the other through shared memory or shuffles.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from xlayout_triton.plan import WORDS
from xlayout_triton.tile import Tile

__all__ = ["UNITS", "constants", "copy_arrays", "copy_tiles"]

_WORDS = tl.constexpr(WORDS)

UNITS = {1: tl.uint8, 2: tl.uint16, 4: tl.uint32, 8: tl.uint64}
"""Bytes -> the integer they are moved as."""


def constants(tile: Tile, *, several: bool, streams: bool) -> tuple[Any, ...]:
    """What a kernel is compiled with."""
    return several, streams, UNITS[tile.unit], *tile.sizes, *tile.runs, *tile.vectors, tile.wide


@triton.constexpr_function
def _product(sizes, first, last):
    product = 1
    for size in sizes[first:last]:
        product *= size
    return product


@triton.jit
def _memory(
    base,
    length,
    strides,
    sizes,
    number,
    TILE: tl.constexpr,
    RUN: tl.constexpr,
    VECTOR: tl.constexpr,
    UNIT: tl.constexpr,
    WIDE: tl.constexpr,
):
    # Pointers to a tile on one side, a row for each run of memory, and which of them are inside.
    # The axes are in the order of this side's memory. Addresses are made by multiplication with the
    # size of a vector, which is how Triton knows that it may move whole vectors.
    APART: tl.constexpr = 4 - RUN
    ROWS: tl.constexpr = _product(TILE, 0, APART)
    LENGTH: tl.constexpr = _product(TILE, APART, 4)
    BYTES: tl.constexpr = VECTOR * (UNIT.primitive_bitwidth // 8)
    start = number[APART].to(tl.int64) * (LENGTH // VECTOR)
    along = tl.arange(0, LENGTH)[None, :]
    inside = along < tl.minimum(length - start, LENGTH // VECTOR).to(tl.int32) * VECTOR
    base += start
    row = tl.arange(0, ROWS)[:, None]
    offset = tl.zeros([ROWS, 1], tl.int64 if WIDE else tl.int32)
    for k in tl.static_range(APART - 1, -1, -1):
        stride = tl.load(strides + k)
        start = number[k].to(tl.int64) * TILE[k]
        base += start * stride
        at = row % TILE[k]
        row = row // TILE[k]
        offset += at * stride.to(offset.dtype)
        inside = inside & (at < tl.minimum(sizes[k] - start, TILE[k]).to(tl.int32))
    first = tl.multiple_of((base * BYTES).to(tl.pointer_type(UNIT)), BYTES)
    return first + (offset * VECTOR + along), inside


@triton.jit
def _three(at):
    return tl.load(at), tl.load(at + 1), tl.load(at + 2)


@triton.jit
def _digit(rest, at):
    # What is left over by a count, and the quotient, by a multiplication that was looked up.
    n, magic = tl.load(at).to(tl.uint32), tl.load(at + 1)
    high = tl.umulhi(rest, magic.to(tl.uint32))
    quotient = (high + rest) >> (magic >> 32).to(tl.uint32)
    return rest - quotient * n, quotient


@triton.jit
def _found(table, pieces, jobs, group, SEVERAL: tl.constexpr):
    # The piece that a program works on, the tile, and whether there is such a tile.
    tile = tl.program_id(0)
    piece = table + pieces
    if SEVERAL:
        job = tl.load(table + jobs + tile // group)
        piece += (job >> 32) * _WORDS
        tile = job.to(tl.int32) + tile % group
        return piece, tile, tile < tl.load(piece + 39)
    return piece, tile, True


@triton.jit
def _picked(addresses, number):
    # One of a tuple, whose length is known when the kernel is compiled.
    address = addresses[0]
    for k in tl.static_range(1, len(addresses)):
        address = tl.where(number == k, addresses[k], address)
    return address


@triton.jit
def _copied(
    piece,
    tile,
    source,
    target,
    STREAMS: tl.constexpr,
    UNIT: tl.constexpr,
    R: tl.constexpr,
    B: tl.constexpr,
    A: tl.constexpr,
    C: tl.constexpr,
    READ_RUN: tl.constexpr,
    WRITE_RUN: tl.constexpr,
    READ_VECTOR: tl.constexpr,
    WRITE_VECTOR: tl.constexpr,
    WIDE: tl.constexpr,
):
    # One tile of one piece, between arrays at two addresses.
    WIDTH: tl.constexpr = UNIT.primitive_bitwidth // 8
    read = source // (READ_VECTOR * WIDTH) + tl.load(piece + 2)
    write = target // (WRITE_VECTOR * WIDTH) + tl.load(piece + 3)
    rest = tile.to(tl.uint32)
    c, rest = _digit(rest, piece + 4)
    b, rest = _digit(rest, piece + 6)
    a, rest = _digit(rest, piece + 8)
    r, rest = _digit(rest, piece + 10)
    for k in tl.static_range(4):
        at, rest = _digit(rest, piece + 12 + 4 * k)
        read += at.to(tl.int64) * tl.load(piece + 14 + 4 * k)
        write += at.to(tl.int64) * tl.load(piece + 15 + 4 * k)
    n_r, n_b, n_a = _three(piece + 28)
    strides, length = piece + 31, tl.load(piece + 37)
    if A == 1:  # nothing to turn
        where, inside = _memory(
            read, length, strides, (n_r, n_a, n_b), (r, a, b, c),
            (R, A, B, C), READ_RUN, READ_VECTOR, UNIT, WIDE,
        )  # fmt: skip
    else:
        where, inside = _memory(
            read, length, strides, (n_r, n_b, n_a), (r, b, a, c),
            (R, B, A, C), READ_RUN, READ_VECTOR, UNIT, WIDE,
        )  # fmt: skip
    if STREAMS:  # what passes by once need not be kept
        values = tl.load(where, inside, eviction_policy="evict_first")
    else:
        values = tl.load(where, inside)
    strides, length = piece + 34, tl.load(piece + 38)
    where, inside = _memory(
        write, length, strides, (n_r, n_a, n_b), (r, a, b, c),
        (R, A, B, C), WRITE_RUN, WRITE_VECTOR, UNIT, WIDE,
    )  # fmt: skip
    if A > 1:
        values = tl.permute(tl.reshape(values, (R, B, A, C)), (0, 2, 1, 3))
        values = tl.reshape(values, where.shape)
    if STREAMS:
        tl.store(where, values, inside, cache_modifier=".cs")
    else:
        tl.store(where, values, inside)


@triton.jit(do_not_specialize=["source", "target", "pieces", "jobs", "group"])
def copy_tiles(
    table,
    source: tl.int64,
    target: tl.int64,
    pieces: tl.int32,
    jobs: tl.int32,
    group: tl.int32,
    SEVERAL: tl.constexpr,
    STREAMS: tl.constexpr,
    UNIT: tl.constexpr,
    R: tl.constexpr,
    B: tl.constexpr,
    A: tl.constexpr,
    C: tl.constexpr,
    READ_RUN: tl.constexpr,
    WRITE_RUN: tl.constexpr,
    READ_VECTOR: tl.constexpr,
    WRITE_VECTOR: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One tile of one piece; addresses are the sums of the arguments and the table's numbers."""
    piece, tile, there = _found(table, pieces, jobs, group, SEVERAL)
    if there:
        _copied(
            piece, tile, source + tl.load(piece), target + tl.load(piece + 1),
            STREAMS, UNIT, R, B, A, C, READ_RUN, WRITE_RUN, READ_VECTOR, WRITE_VECTOR, WIDE,
        )  # fmt: skip


@triton.jit
def copy_arrays(
    table,
    sources,
    targets,
    pieces: tl.int32,
    jobs: tl.int32,
    group: tl.int32,
    SEVERAL: tl.constexpr,
    STREAMS: tl.constexpr,
    UNIT: tl.constexpr,
    R: tl.constexpr,
    B: tl.constexpr,
    A: tl.constexpr,
    C: tl.constexpr,
    READ_RUN: tl.constexpr,
    WRITE_RUN: tl.constexpr,
    READ_VECTOR: tl.constexpr,
    WRITE_VECTOR: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One tile of one piece; the table's numbers say which of the addresses are meant."""
    piece, tile, there = _found(table, pieces, jobs, group, SEVERAL)
    if there:
        _copied(
            piece, tile, _picked(sources, tl.load(piece)), _picked(targets, tl.load(piece + 1)),
            STREAMS, UNIT, R, B, A, C, READ_RUN, WRITE_RUN, READ_VECTOR, WRITE_VECTOR, WIDE,
        )  # fmt: skip
