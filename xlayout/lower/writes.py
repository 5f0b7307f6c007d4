"""Writes: a layout into arrays that were there, by what the next such call finds again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from xlayout.algebra import Layout
from xlayout.backend import Backend
from xlayout.lower.moves import moves_of

__all__ = ["Write", "as_outputs", "is_nested", "write_of"]

Write = Callable[[tuple[Any, ...], Any], Any]
"""Writes a layout of arrays into what is given as `out`, and returns the arrays; None, and nothing
is written, where these are none for it."""


def write_of(backend: Backend, layout: Layout) -> Write | None:
    """What writes a layout in one go; None where holes are to be filled first."""
    if layout.has_holes or not layout.out_size:
        return None
    write = backend.writer(moves_of(layout), layout.in_shapes, layout.out_shapes)
    if len(layout.out_shapes) == 1:  # as it mostly is, and is given; a tuple of it is no array
        return lambda arrays, out: write(arrays, (out,))
    return lambda arrays, out: write(arrays, as_outputs(out))


def as_outputs(out: Any) -> tuple[Any, ...]:
    """What is given as `out`, one by one; tiles come in rows."""
    if not isinstance(out, (tuple, list)):
        return (out,)
    return tuple(chain(*out)) if is_nested(out) else tuple(out)


def is_nested(arrays: Any) -> bool:
    """Whether these are rows of arrays."""
    return isinstance(arrays, (tuple, list)) and all(isinstance(x, (tuple, list)) for x in arrays)
