"""Copy: the Triton kernel that runs strided copies between addresses, one tile per program.

It works on a table of pieces, 39 numbers each, which `plan` writes; `tile` defines what a tile is.
Where a piece is read from and written to is in another list, the ends, two numbers each.
Loads and stores follow rows of memory, so that Triton chooses for each side the layout in which
they coalesce, and moves the values from one to the other through shared memory or shuffles.
"""

from __future__ import annotations

import triton
import triton.language as tl

from xlayout_triton import chain
from xlayout_triton.narrow import narrow_tile
from xlayout_triton.shift import shift_tile
from xlayout_triton.table import LENGTHS, SIZES, STRIDES, located, placed, three, unit_of
from xlayout_triton.words import SHIFTED, VECTORS

__all__ = ["copy_arrays", "copy_tiles"]

_SHIFTED = tl.constexpr(SHIFTED)
_VECTORS = tl.constexpr(VECTORS)


@triton.constexpr_function
def _product(sizes, first, last):
    product = 1
    for size in sizes[first:last]:
        product *= size
    return product


@triton.constexpr_function
def _in_order(tile, side):
    # The sizes of a tile in the order of the input's memory (0) or of the output's (1).
    return tuple(tile.sizes[k] for k in tile.orders[side])


@triton.constexpr_function
def _turn(tile):
    # Where each axis of the output's order is in the input's.
    read, written = tile.orders
    return tuple(read.index(k) for k in written)


@triton.jit
def _pointers(base, length, strides, sizes, numbers, SIDE: tl.constexpr, TILE: tl.constexpr):
    # Pointers to one side of a tile, a row for each run of memory, and a mask of those in bounds.
    # Strides are in this side's memory order. Addresses are computed in vectors and then multiplied
    # by the size of one, from which Triton infers that it may move whole vectors.
    ORDER: tl.constexpr = TILE.orders[SIDE]
    SHAPE: tl.constexpr = _in_order(TILE, SIDE)
    APART: tl.constexpr = 4 - TILE.runs[SIDE]
    ROWS: tl.constexpr = _product(SHAPE, 0, APART)
    LENGTH: tl.constexpr = _product(SHAPE, APART, 4)
    VECTOR: tl.constexpr = TILE.vectors[SIDE]
    start = numbers[ORDER[APART]].to(tl.int64) * (LENGTH // VECTOR)
    along = tl.arange(0, LENGTH)[None, :]
    inside = along < tl.minimum(length - start, LENGTH // VECTOR).to(tl.int32) * VECTOR
    base += start
    row = tl.arange(0, ROWS)[:, None]
    offset = tl.zeros([ROWS, 1], tl.int64 if TILE.wide else tl.int32)
    for k in tl.static_range(APART - 1, -1, -1):
        stride = tl.load(strides + k)
        start = numbers[ORDER[k]].to(tl.int64) * SHAPE[k]
        base += start * stride
        at = row % SHAPE[k]
        row = row // SHAPE[k]
        offset += at * stride.to(offset.dtype)
        inside = inside & (at < tl.minimum(sizes[ORDER[k]] - start, SHAPE[k]).to(tl.int32))
    BYTES: tl.constexpr = VECTOR * TILE.unit
    first = tl.multiple_of((base * BYTES).to(tl.pointer_type(unit_of(TILE))), BYTES)
    return first + (offset * VECTOR + along), inside


@triton.jit
def _select(addresses, number):
    # One element of a tuple, whose length is known at compile time.
    address = addresses[0]
    for k in tl.static_range(1, len(addresses)):
        address = tl.where(number == k, addresses[k], address)
    return address


@triton.jit
def _copy_tile(piece, number, source, target, LINK: tl.constexpr, TILE: tl.constexpr):
    # Copies one tile of one piece from one address to another.
    source //= TILE.vectors[0] * TILE.unit
    target //= TILE.vectors[1] * TILE.unit
    read, write, r, b, a, c = placed(piece, number, source, target)
    n_r, n_b, n_a = three(piece + SIZES)
    numbers, sizes = (r, b, a, c), (n_r, n_b, n_a, tl.load(piece + SIZES + 3))
    strides, length = piece + STRIDES, tl.load(piece + LENGTHS)
    chain.wait(LINK)
    where, inside = _pointers(read, length, strides, sizes, numbers, 0, TILE)
    values = tl.load(where, inside)
    strides, length = piece + STRIDES + 3, tl.load(piece + LENGTHS + 1)
    where, inside = _pointers(write, length, strides, sizes, numbers, 1, TILE)
    if TILE.orders[0] != TILE.orders[1]:
        TURN: tl.constexpr = _turn(TILE)
        values = tl.reshape(values, _in_order(TILE, 0))
        values = tl.reshape(tl.permute(values, (TURN[0], TURN[1], TURN[2], TURN[3])), where.shape)
    tl.store(where, values, inside)


@triton.jit
def _run(
    table, ends, sources, targets, first, jobs, group,
    NUMBERED: tl.constexpr, SEVERAL: tl.constexpr, LINK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    # What a program of either kernel does.
    chain.begin(LINK)
    which, piece, number, exists = located(table, first, jobs, group, SEVERAL)
    if exists:
        ends += 2 * which
        if NUMBERED:
            source, target = _select(sources, tl.load(ends)), _select(targets, tl.load(ends + 1))
        else:
            source, target = sources + tl.load(ends), targets + tl.load(ends + 1)
        if TILE.way == _SHIFTED:
            shift_tile(piece, number, source, target, LINK, TILE)
        elif TILE.way == _VECTORS:
            _copy_tile(piece, number, source, target, LINK, TILE)
        else:
            narrow_tile(piece, number, source, target, LINK, TILE)
    chain.end(LINK)


@triton.jit(do_not_specialize=["source", "target", "first", "jobs", "group"])
def copy_tiles(
    table, ends, source: tl.int64, target: tl.int64, first: tl.int32, jobs: tl.int32,
    group: tl.int32, SEVERAL: tl.constexpr, LINK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Copies one tile; `source` and `target` are added to the addresses in `ends`.

    SEVERAL: whether the launch has more than one piece. TILE: a `Tile`.
    """
    _run(table, ends, source, target, first, jobs, group, False, SEVERAL, LINK, TILE)


@triton.jit
def copy_arrays(
    table, ends, sources, targets, first: tl.int32, jobs: tl.int32,
    group: tl.int32, SEVERAL: tl.constexpr, LINK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Copies one tile; `ends` holds numbers of arrays in `sources` and `targets`."""
    _run(table, ends, sources, targets, first, jobs, group, True, SEVERAL, LINK, TILE)
