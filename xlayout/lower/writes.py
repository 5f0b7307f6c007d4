"""Writes: functions that run a layout into existing arrays, for later calls to find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.join import Side, side
from xlayout.algebra.near import near
from xlayout.backend import Backend
from xlayout.lower.fill import has_zero
from xlayout.lower.holes import copied_holes
from xlayout.lower.moves import moves_of
from xlayout_native.strided import ZEROS

__all__ = ["Write", "as_outputs", "is_nested", "neighbours", "write_of", "writer_of"]

_SMALL = 1 << 14  # elements; of more, in short rows, frameworks fill the holes faster
_ROW = 64  # elements; rows of fewer are short
_FEW = 16  # arrays; that few are compared with one another sooner than told apart
_MOST = 1 << 40  # elements; more have no place in memory, which a framework is to say

Write = Callable[[tuple[Any, ...], Any], Any]
"""(arrays, out) -> the arrays written into; None, with nothing written, if it cannot take these."""


def write_of(backend: Backend, layout: Layout) -> Write | None:
    """A function that writes a layout in one go, with zeros in its holes; None if there is none."""
    write = writer_of(backend, layout)
    if write is None:
        return None
    if len(layout.out_shapes) == 1:  # the usual case; a tuple of one goes the long way
        return lambda arrays, out: write(arrays, (out,))
    return lambda arrays, out: write(arrays, as_outputs(out))


def writer_of(backend: Backend, layout: Layout) -> Callable[[Any, Any], Any] | None:
    """`backend.writer` of a layout, with zeros in its holes; None if it cannot have them."""
    if not layout.out_size:
        return None
    moves, shapes = moves_of(layout), layout.in_shapes
    if not layout.has_holes:
        return backend.writer(moves, shapes, layout.out_shapes)
    holes = copied_holes(layout, ZEROS)
    short = min(shape[-1:] for shape in layout.out_shapes) < (_ROW,)
    if holes is None or (short and layout.out_size > _SMALL) or layout.out_size > _MOST:
        return None
    write = backend.writer((*moves, *holes), shapes, layout.out_shapes)
    return lambda arrays, outputs: write(arrays, outputs) if has_zero(arrays[0].dtype) else None


def neighbours(backend: Backend, arrays: Sequence[Any]) -> Callable[[Any], Sequence[int]]:
    """A function from an array to the numbers of those that it may share memory with."""
    everyone = range(len(arrays))
    boxes = [_box(backend, x) for x in arrays] if len(arrays) > _FEW else []
    known = [box for box in boxes if box is not None]
    if len(known) < len(arrays):
        return lambda _y: everyone
    lowest = min(first for first, _, _ in known)
    meeting = near([(first - lowest, 0, steps) for first, _, steps in known])

    def of(y: Any) -> Sequence[int]:
        box = _box(backend, y)
        return everyone if box is None else meeting((box[0] - lowest, 0, box[2]))

    return of


def _box(backend: Backend, x: Any) -> Side | None:
    """The bytes of an array, or None if they are not known."""
    extent = getattr(backend, "extent", None)  # a backend of others may be older
    found = extent and extent(x)
    if found is None:
        return None
    first, width, axes = found
    return side(first, 0, ((width, 1, 0), *((n, step, 0) for step, n in axes if step)))


def as_outputs(out: Any) -> tuple[Any, ...]:
    """The arrays of `out`, in one flat tuple; tiles come in rows."""
    if not isinstance(out, (tuple, list)):
        return (out,)
    return tuple(chain(*out)) if is_nested(out) else tuple(out)


def is_nested(arrays: Any) -> bool:
    """Whether these are rows of arrays."""
    return isinstance(arrays, (tuple, list)) and all(isinstance(x, (tuple, list)) for x in arrays)
