"""Native: numpy's own copies given to the compiled kernel, where it is faster."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import xlayout_native
from xlayout_native.strided import (
    LARGE,
    SMALL,
    Moves,
    meets,
    one_move,
    plan_to_write,
    plan_where_faster,
)
from xlayout_native.switch import wanted

__all__ = ["empty", "fresh", "move", "row_major", "writer"]

_HUGE = 1 << 21
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


def fresh(x: Any) -> Any | None:
    """A row-major copy of an array, or None where numpy should make it."""
    if x.nbytes < SMALL or not _plain(x):
        return None
    strides = [s // x.itemsize for s in x.strides]
    y = empty(x.shape, x.dtype)
    return y if move(one_move(x.shape, strides), (x,), (y,)) else None


def empty(shape: Sequence[int], dtype: Any) -> Any:
    """Memory not yet written; on huge pages where there is much of it."""
    count = math.prod(shape)
    nbytes = count * dtype.itemsize
    if not xlayout_native.available or nbytes < LARGE or not _PRIVATE:
        return np.empty(shape, dtype)
    # numpy's own memory starts 16 bytes past a page, and so no row of it on a line; nor is its
    # first huge page whole. (512 small pages cost as much as a quarter of a memcpy of 64 MB.)
    try:
        memory = mmap.mmap(-1, -(-nbytes // _HUGE) * _HUGE, flags=_PRIVATE)
    except (OSError, OverflowError):
        return np.empty(shape, dtype)  # or numpy's own word for what there is no memory for
    y = np.frombuffer(memory, dtype, count).reshape(shape)
    xlayout_native.huge_pages(xlayout_native.address(y), nbytes)
    return y


def move(moves: Moves, arrays: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether all moves are made, between arrays of one dtype; if not, numpy should make them."""
    both = (*arrays, *outputs)
    if not xlayout_native.available or not all(map(_plain, both)):
        return False
    plan = plan_where_faster(moves, arrays[0].itemsize, len(arrays), len(outputs))
    if plan is None:
        return False
    xlayout_native.run(plan, 0, *[xlayout_native.address(x) for x in both])
    return True


def writer(
    moves: Moves, inputs: int, shapes: Sequence[tuple[int, ...]], /
) -> Callable[[Sequence[Any], Sequence[Any] | None], Sequence[Any] | None]:
    plans = lru_cache(lambda size: plan_to_write(moves, size, inputs, shapes))

    def write(arrays: Sequence[Any], outputs: Sequence[Any] | None) -> Sequence[Any] | None:
        dtype = arrays[0].dtype
        found = plans(dtype.itemsize) if dtype.itemsize else None
        if found is None or not wanted() or dtype.hasobject or not all(map(row_major, arrays)):
            return None
        made = [empty(shape, dtype) for shape in shapes] if outputs is None else outputs
        if not all(map(row_major, made)):
            return None
        addresses = [xlayout_native.address(x) for x in (*arrays, *made)]
        if outputs is not None and not fits(arrays, outputs, addresses):
            return None
        plan, threads = found
        xlayout_native.run(plan, threads, *addresses)
        return made

    def fits(arrays: Sequence[Any], outputs: Sequence[Any], addresses: list[int]) -> bool:
        if len(outputs) != len(shapes):
            return False
        for y, shape in zip(outputs, shapes, strict=True):
            if y.dtype != arrays[0].dtype or y.shape != shape or not y.flags.writeable:
                return False
        return not meets(addresses, [x.nbytes for x in (*arrays, *outputs)], inputs)

    return write


def row_major(x: Any) -> bool:
    """Whether its bytes lie in the order of its elements."""
    return type(x) is np.ndarray and bool(x.flags.c_contiguous)


def _plain(x: Any) -> bool:
    """Bytes that mean the same wherever they lie, at whole elements apart."""
    return (
        type(x) is np.ndarray
        and x.itemsize > 0
        and not x.dtype.hasobject
        and not any(s % x.itemsize for s in x.strides)
    )
