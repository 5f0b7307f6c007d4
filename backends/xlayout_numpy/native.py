"""Native: numpy's own copies given to the compiled kernel, where it is faster."""

from __future__ import annotations

from typing import Any

import numpy as np

import xlayout_native
from xlayout_native.strided import SMALL, plan_where_faster

__all__ = ["copied", "fresh"]


def fresh(x: Any) -> Any | None:
    """A row-major copy of an array, or None where numpy should make it."""
    if x.nbytes < SMALL or type(x) is not np.ndarray:
        return None
    y = np.empty(x.shape, x.dtype)  # numpy itself asks for huge pages
    return y if copied(y, x) else None


def copied(to: Any, source: Any) -> bool:
    """Whether `source` is written into `to`, of its shape and dtype; if not, numpy should do it."""
    if not xlayout_native.available or to.nbytes < SMALL or not (_plain(to) and _plain(source)):
        return False
    size = to.itemsize
    plan = plan_where_faster(
        to.shape,
        tuple([s // size for s in source.strides]),
        tuple([s // size for s in to.strides]),
        size,
    )
    if plan is None:
        return False
    xlayout_native.run(plan, 0, source.ctypes.data, to.ctypes.data)
    return True


def _plain(x: Any) -> bool:
    """Bytes that mean the same wherever they lie, at whole elements apart."""
    return (
        type(x) is np.ndarray
        and not x.dtype.hasobject
        and not any(s % x.itemsize for s in x.strides)
    )
