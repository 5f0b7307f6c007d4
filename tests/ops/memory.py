"""Arrays with every arrangement in memory that a caller may have, and which arrays share memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tests.frameworks import Framework
from xlayout.algebra.strided import row_major

__all__ = ["FORMS", "arranged", "arrangements", "is_row_major", "shares"]

Strides = tuple[int, ...]


def _reversed_axes(shape: tuple[int, ...]) -> Strides:
    return tuple(reversed(row_major(shape[::-1])))


def _sliced(shape: tuple[int, ...]) -> Strides:
    return tuple(2 * s for s in row_major([n + 1 for n in shape]))


def _repeated(shape: tuple[int, ...]) -> Strides:
    return (0, *row_major(shape[1:])) if shape else ()


def _negative(shape: tuple[int, ...]) -> Strides:
    return tuple(-s for s in row_major(shape))


def _odd_ones(shape: tuple[int, ...]) -> Strides:
    return tuple(97 if n == 1 else s for n, s in zip(shape, row_major(shape), strict=True))


FORMS: dict[str, Callable[[tuple[int, ...]], Strides]] = {
    "row-major": row_major,
    "transposed": _reversed_axes,
    "sliced": _sliced,
    "expanded": _repeated,
    "negative": _negative,
    "odd strides of size-1 axes": _odd_ones,
}
"""Element strides for a shape; torch has no negative ones, JAX none at all."""


def arranged(framework: Framework, values: np.ndarray, form: str) -> tuple[Any, np.ndarray]:
    """An array of `framework` in that form, and its values (an expanded axis holds one row)."""
    strides = FORMS[form](values.shape)
    if form == "expanded" and values.ndim:
        values = np.broadcast_to(values[:1], values.shape)
    reach = [(n - 1) * s for n, s in zip(values.shape, strides, strict=True)] if values.size else []
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    memory = np.zeros(high - low + 3, values.dtype)  # one element more at both ends
    nbytes = tuple(s * values.itemsize for s in strides)
    window = as_strided(memory[1 - low :], values.shape, nbytes)
    window[...] = values
    if framework.name.startswith("torch"):
        x = framework.array(memory).as_strided(values.shape, strides, 1 - low)
        assert x.stride() == strides
        return x, values
    if framework.name.endswith("readonly"):
        window.setflags(write=False)
    return window, values


def _reach(x: Any) -> tuple[int, int]:
    """First and one past the last byte that an array can reach."""
    if isinstance(x, np.ndarray):
        return np.lib.array_utils.byte_bounds(x)
    if hasattr(x, "unsafe_buffer_pointer"):
        return x.unsafe_buffer_pointer(), x.unsafe_buffer_pointer() + x.nbytes
    if not x.numel():
        return 0, 0
    span = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
    return x.data_ptr(), x.data_ptr() + span * x.element_size()


def shares(x: Any, y: Any) -> bool:
    """Whether the two arrays reach a common byte."""
    (a, b), (c, d) = _reach(x), _reach(y)
    return math.prod(x.shape) > 0 and math.prod(y.shape) > 0 and a < d and c < b


def is_row_major(x: Any) -> bool:
    """Whether the elements are contiguous in row-major order; JAX arrays always are."""
    if isinstance(x, np.ndarray):
        return bool(x.flags.c_contiguous)
    return x.is_contiguous() if hasattr(x, "is_contiguous") else True


def arrangements(frameworks: Iterable[Framework]) -> list[Any]:
    """Parameters of tests: each framework with every form that its arrays can have."""
    return [
        pytest.param(framework, form, id=f"{framework.name}-{form}")
        for framework in frameworks
        for form in FORMS
        if (framework.name, form) != ("torch", "negative")
    ]
