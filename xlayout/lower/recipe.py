"""Recipe: a layout bound to one backend, to be called repeatedly with fresh results.

One gap-free piece is one reshape-permute-reshape. Everything else is the straight-line program; for
large arrays whose memory may be accessed directly (numpy, plain torch tensors) it is one strided
copy per piece instead, which makes no intermediate arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.program import Step
from xlayout.backend import Backend, Moves
from xlayout.lower.bound import bound, spent_by, tables_of
from xlayout.lower.fill import is_zero
from xlayout.lower.holes import copied_holes, fill_holes
from xlayout.lower.linear import as_linear, form_of, linear_of
from xlayout.lower.moves import moves_of
from xlayout.lower.relayout import program_of, relayout_of
from xlayout.lower.tuned import tuned
from xlayout.lower.writes import writer_of
from xlayout_native.strided import ZEROS

__all__ = ["Recipe", "recipe", "write_pieces"]

_SMALL = 1 << 14  # elements; below, a strided copy costs more to set up than it saves
_ROW = 256  # elements; no framework concatenates shorter rows as fast as it copies
_LARGE = 1 << 22  # elements; below, a framework fills what is missing as fast as the kernel

Recipe = Callable[..., Any]
"""Arrays in, one array out, or a tuple of several."""


def recipe(layout: Layout, backend: Backend, fill: Any) -> Recipe:
    """The fastest way to run a layout repeatedly on concrete arrays of one backend."""
    if backend.immutable:
        return _compiled(layout, backend, fill)
    direct = _direct(layout, backend)
    small = layout.out_size <= _SMALL
    form = cache(lambda: form_of(layout, False, is_zero(fill)))
    if direct is not None:
        if small:
            return _quick(layout, backend, fill, direct)
        each = _written(layout, backend, _linear(form, backend, direct))
        if len(layout.out_shapes) == 1:
            return each
        # Where copies are batched, as on a GPU, one `move` makes all outputs.
        at_once = _by_pieces(layout, backend, fill, each)
        return lambda x: each(x) if backend.batch_strides((x,)) is None else at_once(x)
    program, steps = _program(layout, backend, fill)
    if small:
        # A single step is one call already, but padding takes longer than zeros and the kernel.
        alone = len(steps) == 1 and not layout.has_holes
        return program if alone else _quick(layout, backend, fill, program)
    program = _linear(form, backend, program)
    by_pieces = _by_pieces(layout, backend, fill, program, _joined(layout, steps))
    if layout.has_holes and not is_zero(fill):
        return _quick(layout, backend, fill, by_pieces)
    return _written(layout, backend, by_pieces)


def _compiled(layout: Layout, backend: Backend, fill: Any) -> Recipe:
    """What a framework compiles as a whole: one operation for large arrays, or plain ops."""
    plain = _direct(layout, backend) or _program(layout, backend, fill)[0]
    return _linear(lambda: linear_of(layout, backend, fill), backend, plain)


def _program(layout: Layout, backend: Backend, fill: Any) -> tuple[Recipe, Sequence[Step]]:
    """The straight-line program, and its steps."""
    whole = program_of(layout)
    program = tuned(whole, layout, immutable=backend.immutable)

    @cache
    def made() -> Recipe:
        tables = tables_of(layout, whole)
        steps, outputs = program.steps, program.outputs
        return bound(backend, steps, outputs, tables, fill, spent_by(steps, outputs))

    # An index table takes 8 bytes per element, so it is made when a call needs it.
    run = (lambda *arrays: made()(*arrays)) if whole.gathers else made()
    return run, program.steps


def _written(layout: Layout, backend: Backend, otherwise: Recipe) -> Recipe:
    """Row-major arrays in one go, if the backend can; `otherwise` for all others."""
    moves = moves_of(layout)
    write = writer_of(backend, layout)
    if write is None:
        return backend.quick(otherwise, None, len(layout.in_shapes), layout.out_shapes)

    def run(*arrays: Any) -> Any:
        made = write(arrays, None)
        if made is None:
            return otherwise(*arrays)
        return made[0] if len(made) == 1 else tuple(made)

    return backend.quick(run, moves, len(layout.in_shapes), layout.out_shapes)


def _linear(make: Callable[[], Any], backend: Backend, otherwise: Recipe) -> Recipe:
    """One operation that autograd or a compiler sees, if the backend has one for these arrays."""

    def run(*arrays: Any) -> Any:
        made = as_linear(make, backend, arrays)
        return otherwise(*arrays) if made is None else made

    return run


def _joined(layout: Layout, steps: Sequence[Step]) -> int | None:
    """The axis of the concatenation, if the whole program is one, and joins long rows."""
    found = [step for step in steps if step[0] != "reshape"]
    if len(found) != 1 or found[0][0] not in ("concatenate", "stack"):
        return None
    rows = [loops[-1] if loops else (1, 1, 1) for _, _, (_, _, loops) in moves_of(layout)]
    axis: int = found[0][2][0]
    return axis if all(n >= _ROW and x == z == 1 for n, x, z in rows) else None


def _by_pieces(
    layout: Layout, backend: Backend, fill: Any, otherwise: Recipe, joined: int | None = None
) -> Recipe:
    """One strided copy per piece, if memory may be accessed directly."""

    def by_pieces(*arrays: Any) -> Any:
        if joined is not None and backend.concatenates_well(arrays, joined):
            return otherwise(*arrays)
        strides = [backend.strides(x) for x in arrays]
        if None in strides or len({backend.kind(x) for x in arrays}) > 1:
            return otherwise(*arrays)
        outputs = [backend.empty(shape, arrays[0]) for shape in layout.out_shapes]
        write_pieces(backend, layout, arrays, outputs, fill)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return by_pieces


def _quick(layout: Layout, backend: Backend, fill: Any, recipe: Recipe) -> Recipe:
    """The recipe; in one call of the backend if there are elements, and only zeros in holes."""
    alone = layout.out_size and (is_zero(fill) or not layout.has_holes)
    moves = moves_of(layout) if alone else None
    return backend.quick(recipe, moves, len(layout.in_shapes), layout.out_shapes)


def _direct(layout: Layout, backend: Backend) -> Recipe | None:
    """Every output by one relayout of the one input, if that is the whole program."""
    if len(layout.in_shapes) != 1 or (backend.immutable and len(layout.out_shapes) > 1):
        return None
    calls = []
    for only in layout.each():
        steps = relayout_of(only)
        if steps is None:
            return None
        calls.append(backend.relayout(steps, only.as_view() is None, only.out_size))
    if len(calls) == 1:
        return calls[0]
    return lambda x: tuple([call(x) for call in calls])


def write_pieces(
    backend: Backend, layout: Layout, arrays: Sequence[Any], outputs: Sequence[Any], fill: Any
) -> None:
    """One strided copy per piece, from the arrays' memory into the outputs' memory."""
    sources = tuple(backend.strides(x) for x in arrays)
    targets = tuple(backend.strides(y) for y in outputs)
    moves = moves_of(layout, sources, targets)
    if layout.has_holes:
        holes = _holes(backend, layout, outputs)
        if holes is not None and backend.batch_strides(arrays) is None:  # never tried on a GPU
            row = backend.full((ZEROS,), fill, arrays[0])
            if backend.move((*moves, *holes), (*arrays, row), outputs):
                return
        fill_holes(backend, layout, outputs, fill)
    if backend.move(moves, arrays, outputs):
        return
    for source, target, (address, to, loops) in moves:
        shape = [n for n, _, _ in loops]
        backend.assign(
            backend.view(outputs[target], to, [z for _, _, z in loops], shape),
            backend.view(arrays[source], address, [x for _, x, _ in loops], shape),
        )
    for empty in (y for y in outputs if 0 in y.shape):
        backend.assign(empty, empty)  # writes nothing, but torch counts it as a write


def _holes(backend: Backend, layout: Layout, outputs: Sequence[Any]) -> Moves | None:
    """The holes as copies too, if all in one go is faster."""
    rows = [shape[-1:] for shape in layout.out_shapes]
    if layout.out_size < _LARGE or min(rows) < (_ROW,):
        return None
    return copied_holes(layout, ZEROS, tuple(backend.strides(y) for y in outputs))
