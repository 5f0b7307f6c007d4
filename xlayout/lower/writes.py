"""Writes: what wrote a layout into arrays that were there, found again by the next such call."""

from __future__ import annotations

from itertools import chain
from typing import Any

from xlayout.algebra import Layout
from xlayout.backend import Backend, Runs
from xlayout.lower.moves import moves_of

__all__ = ["Asked", "as_outputs", "asked_to_write", "is_nested", "keep_write", "rewritten"]

Asked = tuple[Any, tuple[Any, ...] | None, dict[str, Any]]
"""What a call is found by: an array and arguments, or a tuple of arrays and None; and options."""


def asked_to_write(
    arrays: tuple[Any, ...], args: tuple[Any, ...] | None, options: dict[str, Any]
) -> Asked:
    """By what a call with `out=` is found: all that it says, but where that is."""
    told = options.copy()
    told.pop("out", None)
    return (arrays if args is None else arrays[0]), args, told


def as_outputs(out: Any) -> tuple[Any, ...]:
    """What is given as `out`, one by one; tiles come in rows."""
    if not isinstance(out, (tuple, list)):
        return (out,)
    return tuple(chain(*out)) if is_nested(out) else tuple(out)


def is_nested(arrays: Any) -> bool:
    """Whether these are rows of arrays."""
    return isinstance(arrays, (tuple, list)) and all(isinstance(x, (tuple, list)) for x in arrays)


def rewritten(
    backend: Backend, writes: Runs, asked: Asked, arrays: tuple[Any, ...], out: Any
) -> bool:
    """Whether `out` is written now, by what `keep_write` kept of an earlier call."""
    write = backend.find(writes, *asked)
    return write is not None and write(arrays, as_outputs(out)) is not None


def keep_write(backend: Backend, writes: Runs, asked: Asked, layout: Layout) -> None:
    """Keep what writes a layout into arrays that are there, unless holes are to be filled first."""
    if layout.has_holes or not layout.out_size:
        return
    if backend.find(writes, *asked) is not None:
        return  # it is there, and these arrays are none for it
    write = backend.writer(moves_of(layout), len(layout.in_shapes), layout.out_shapes)
    backend.keep(writes, *asked, write)
