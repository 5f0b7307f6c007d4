"""Copy: the Triton kernel that runs strided copies between addresses, one tile per program.

It works on a table of pieces, 38 numbers each, which `plan` writes; `tile` defines what a tile is.
Where a piece is read from and written to is in another list, the ends, two numbers each.
Loads and stores follow rows of memory, so that Triton chooses for each side the layout in which
they coalesce, and moves the values from one to the other through shared memory or shuffles.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from xlayout_triton import chain
from xlayout_triton.shift import shift_tile
from xlayout_triton.table import located, placed, three
from xlayout_triton.tile import Tile

__all__ = ["UNITS", "constants", "copy_arrays", "copy_tiles"]

UNITS = {1: tl.uint8, 2: tl.uint16, 4: tl.uint32, 8: tl.uint64}
"""Bytes of a unit -> the integer type it is moved as."""


def constants(tile: Tile, *, several: bool, link: int) -> tuple[Any, ...]:
    """The compile-time arguments of a kernel, in order."""
    shape = *tile.sizes, *tile.runs, *tile.vectors, tile.wide
    return several, tile.shifted, link, UNITS[tile.unit], *shape


@triton.constexpr_function
def _product(sizes, first, last):
    product = 1
    for size in sizes[first:last]:
        product *= size
    return product


@triton.jit
def _pointers(
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
    # Pointers to one side of a tile, a row for each run of memory, and a mask of those in bounds.
    # Axes are in this side's memory order. Addresses are computed in vectors and then multiplied by
    # the size of one, from which Triton infers that it may move whole vectors.
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
def _select(addresses, number):
    # One element of a tuple, whose length is known at compile time.
    address = addresses[0]
    for k in tl.static_range(1, len(addresses)):
        address = tl.where(number == k, addresses[k], address)
    return address


@triton.jit
def _copy_tile(
    piece,
    tile,
    source,
    target,
    LINK: tl.constexpr,
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
    # Copies one tile of one piece from one address to another.
    WIDTH: tl.constexpr = UNIT.primitive_bitwidth // 8
    read, write, r, b, a, c = placed(
        piece, tile, source // (READ_VECTOR * WIDTH), target // (WRITE_VECTOR * WIDTH)
    )
    n_r, n_b, n_a = three(piece + 26)
    strides, length = piece + 29, tl.load(piece + 35)
    chain.wait(LINK)
    if A == 1:  # nothing to transpose
        where, inside = _pointers(
            read, length, strides, (n_r, n_a, n_b), (r, a, b, c),
            (R, A, B, C), READ_RUN, READ_VECTOR, UNIT, WIDE,
        )  # fmt: skip
    else:
        where, inside = _pointers(
            read, length, strides, (n_r, n_b, n_a), (r, b, a, c),
            (R, B, A, C), READ_RUN, READ_VECTOR, UNIT, WIDE,
        )  # fmt: skip
    values = tl.load(where, inside)
    strides, length = piece + 32, tl.load(piece + 36)
    where, inside = _pointers(
        write, length, strides, (n_r, n_a, n_b), (r, a, b, c),
        (R, A, B, C), WRITE_RUN, WRITE_VECTOR, UNIT, WIDE,
    )  # fmt: skip
    if A > 1:
        values = tl.permute(tl.reshape(values, (R, B, A, C)), (0, 2, 1, 3))
        values = tl.reshape(values, where.shape)
    tl.store(where, values, inside)


@triton.jit
def _run(
    table,
    ends,
    sources,
    targets,
    first,
    jobs,
    group,
    NUMBERED: tl.constexpr,
    SEVERAL: tl.constexpr,
    SHIFTED: tl.constexpr,
    LINK: tl.constexpr,
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
    # What a program of either kernel does.
    chain.begin(LINK)
    number, piece, tile, exists = located(table, first, jobs, group, SEVERAL)
    if exists:
        ends += 2 * number
        if NUMBERED:
            source, target = _select(sources, tl.load(ends)), _select(targets, tl.load(ends + 1))
        else:
            source, target = sources + tl.load(ends), targets + tl.load(ends + 1)
        if SHIFTED:
            shift_tile(piece, tile, source, target, LINK, UNIT, B, A)
        else:
            _copy_tile(
                piece, tile, source, target, LINK, UNIT, R, B, A, C,
                READ_RUN, WRITE_RUN, READ_VECTOR, WRITE_VECTOR, WIDE,
            )  # fmt: skip
    chain.end(LINK)


@triton.jit(do_not_specialize=["source", "target", "first", "jobs", "group"])
def copy_tiles(
    table,
    ends,
    source: tl.int64,
    target: tl.int64,
    first: tl.int32,
    jobs: tl.int32,
    group: tl.int32,
    SEVERAL: tl.constexpr,
    SHIFTED: tl.constexpr,
    LINK: tl.constexpr,
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
    """Copies one tile; `source` and `target` are added to the addresses in `ends`."""
    _run(
        table, ends, source, target, first, jobs, group, False, SEVERAL, SHIFTED, LINK, UNIT,
        R, B, A, C, READ_RUN, WRITE_RUN, READ_VECTOR, WRITE_VECTOR, WIDE,
    )  # fmt: skip


@triton.jit
def copy_arrays(
    table,
    ends,
    sources,
    targets,
    first: tl.int32,
    jobs: tl.int32,
    group: tl.int32,
    SEVERAL: tl.constexpr,
    SHIFTED: tl.constexpr,
    LINK: tl.constexpr,
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
    """Copies one tile; `ends` holds numbers of arrays in `sources` and `targets`."""
    _run(
        table, ends, sources, targets, first, jobs, group, True, SEVERAL, SHIFTED, LINK, UNIT,
        R, B, A, C, READ_RUN, WRITE_RUN, READ_VECTOR, WRITE_VECTOR, WIDE,
    )  # fmt: skip
