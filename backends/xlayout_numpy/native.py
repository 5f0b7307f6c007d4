"""Native: numpy's own copies given to the compiled kernel, where it is faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import xlayout_native
from xlayout_native.strided import LARGE, SMALL, Moves, one_move, plan_where_faster

__all__ = ["empty", "fresh", "move"]


def fresh(x: Any) -> Any | None:
    """A row-major copy of an array, or None where numpy should make it."""
    if x.nbytes < SMALL or not _plain(x):
        return None
    strides = [s // x.itemsize for s in x.strides]
    y = empty(x.shape, x.dtype)
    return y if move(one_move(x.shape, strides), (x,), (y,)) else None


def empty(shape: Sequence[int], dtype: Any) -> Any:
    """Memory not yet written; on huge pages where there is much of it."""
    y = np.empty(shape, dtype)
    if xlayout_native.available and y.nbytes >= LARGE:
        xlayout_native.huge_pages(y.ctypes.data, y.nbytes)
    return y


def move(moves: Moves, arrays: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether all moves are made, between arrays of one dtype; if not, numpy should make them."""
    both = (*arrays, *outputs)
    if not xlayout_native.available or not all(map(_plain, both)):
        return False
    plan = plan_where_faster(moves, arrays[0].itemsize, len(arrays), len(outputs))
    if plan is None:
        return False
    xlayout_native.run(plan, 0, *[x.ctypes.data for x in both])
    return True


def _plain(x: Any) -> bool:
    """Bytes that mean the same wherever they lie, at whole elements apart."""
    return (
        type(x) is np.ndarray
        and not x.dtype.hasobject
        and not any(s % x.itemsize for s in x.strides)
    )
