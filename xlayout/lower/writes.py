"""Writes: functions that run a layout into existing arrays, for later calls to find."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from xlayout.algebra import Layout
from xlayout.backend import Backend
from xlayout.lower.moves import moves_of

__all__ = ["Write", "as_outputs", "is_nested", "write_of"]

Write = Callable[[tuple[Any, ...], Any], Any]
"""(arrays, out) -> the arrays written into; None, with nothing written, if it cannot take these."""


def write_of(backend: Backend, layout: Layout) -> Write | None:
    """A function that writes a layout in one go; None if holes have to be filled first."""
    if layout.has_holes or not layout.out_size:
        return None
    write = backend.writer(moves_of(layout), layout.in_shapes, layout.out_shapes)
    if len(layout.out_shapes) == 1:  # the usual case; a tuple of one goes the long way
        return lambda arrays, out: write(arrays, (out,))
    return lambda arrays, out: write(arrays, as_outputs(out))


def as_outputs(out: Any) -> tuple[Any, ...]:
    """The arrays of `out`, in one flat tuple; tiles come in rows."""
    if not isinstance(out, (tuple, list)):
        return (out,)
    return tuple(chain(*out)) if is_nested(out) else tuple(out)


def is_nested(arrays: Any) -> bool:
    """Whether these are rows of arrays."""
    return isinstance(arrays, (tuple, list)) and all(isinstance(x, (tuple, list)) for x in arrays)
