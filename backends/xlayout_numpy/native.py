"""Native: copies by the compiled kernel in place of numpy's, where it is faster."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np

import xlayout_native
from xlayout_native.strided import (
    LARGE,
    SMALL,
    ZEROS,
    Moves,
    plan_to_copy,
    plan_to_write,
    plan_where_faster,
)
from xlayout_native.switch import wanted

__all__ = ["are_bytes", "empty", "fresh", "in_elements", "move", "writer"]

_HUGE = 1 << 21
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


def fresh(x: Any) -> Any | None:
    """A row-major copy of an array, or None where numpy should make it."""
    steps = None if x.nbytes < SMALL else _steps(x)
    plan = None if steps is None else plan_to_copy(x.shape, steps, x.itemsize)
    if plan is None:
        return None
    y = empty(x.shape, x.dtype)
    xlayout_native.run(plan, 0, xlayout_native.address(x), xlayout_native.address(y))
    return y


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
        return np.empty(shape, dtype)  # or numpy's own error, if there is no memory
    y = np.frombuffer(memory, dtype, count).reshape(shape)
    xlayout_native.huge_pages(xlayout_native.address(y), nbytes)
    return y


def move(moves: Moves, arrays: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether all moves are made, between arrays of one dtype; if not, numpy should make them."""
    both = (*arrays, *outputs)
    plan = plan_where_faster(moves, arrays[0].itemsize, len(arrays), len(outputs))
    if plan is None or any(_steps(x) is None for x in both):
        return False
    xlayout_native.run(plan, 0, *[xlayout_native.address(x) for x in both])
    return True


def writer(
    moves: Moves, sources: Sequence[tuple[int, ...]], targets: Sequence[tuple[int, ...]], /
) -> Callable[[Sequence[Any], Sequence[Any] | None], Sequence[Any] | None]:
    fills = any(source == len(sources) for source, _, _ in moves)
    plans = lru_cache(lambda size: plan_to_write(moves, size, len(sources) + fills, targets))

    def write(arrays: Sequence[Any], outputs: Sequence[Any] | None) -> Sequence[Any] | None:
        dtype = arrays[0].dtype
        plan = plans(dtype.itemsize) if dtype.itemsize else None
        if plan is None or not wanted() or not are_bytes(dtype, *arrays):
            return None
        if fills and dtype.kind in "SU":  # what numpy fills text with is "0"
            return None
        if outputs is None:
            outputs = [empty(shape, dtype) for shape in targets]
        elif not fits(outputs, dtype):
            return None
        zeros = (np.zeros(ZEROS, dtype),) if fills else ()
        return outputs if xlayout_native.run_arrays(plan, 0, *arrays, *zeros, *outputs) else None

    def fits(outputs: Sequence[Any], dtype: Any) -> bool:
        if len(outputs) != len(targets) or not (dtype.names is None or _has_no_gaps(dtype)):
            return False
        for y, shape in zip(outputs, targets, strict=True):
            if type(y) is not np.ndarray or y.dtype != dtype or y.shape != shape:
                return False
        return True

    return write


_PLAIN_TYPES = frozenset([np.ndarray])  # a subclass may mean more than its bytes


def are_bytes(dtype: Any, *arrays: Any) -> bool:
    """Whether arrays of a dtype are nothing more than their bytes."""
    return not dtype.hasobject and _PLAIN_TYPES.issuperset(map(type, arrays))


@lru_cache(256)
def _has_no_gaps(dtype: Any) -> bool:
    """Whether every byte belongs to a field: what lies between may be the fields of another view.

    >>> base = np.dtype([("a", "i4"), ("b", "i4"), ("c", "i4")])
    >>> _has_no_gaps(base), _has_no_gaps(base[["a", "c"]])
    (True, False)
    """
    if dtype.subdtype is not None:
        return _has_no_gaps(dtype.subdtype[0])
    if dtype.names is None:
        return True
    end = 0
    for field, at, *_ in sorted(dtype.fields.values(), key=itemgetter(1)):
        if at > end or not _has_no_gaps(field):
            return False
        end = max(end, at + field.itemsize)
    return bool(end == dtype.itemsize)


def _steps(x: Any) -> tuple[int, ...] | None:
    """Strides in elements; None for arrays that are more than their bytes, or have gaps."""
    if not are_bytes(x.dtype, x) or not _has_no_gaps(x.dtype):
        return None
    return in_elements(x.strides, x.itemsize)


@lru_cache(4096)
def in_elements(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...] | None:
    """Strides that numpy counts in bytes; None where elements are not whole elements apart.

    >>> in_elements((24, 8), 8), in_elements((24, 12), 8)
    ((3, 1), None)
    """
    if not itemsize or any(s % itemsize for s in strides):  # without bytes: float0, say
        return None
    return tuple(s // itemsize for s in strides)
