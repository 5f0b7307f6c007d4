"""Run: checks arrays, then makes a view, runs a recipe or a program, or writes into `out`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.shapes import a_type
from xlayout.backend import Backend, CallKey, Run, Runs
from xlayout.errors import ShapeError
from xlayout.lower.calls import caller, common_backend, kind_of, look_up
from xlayout.lower.constant_call import constant_call, program_of_call
from xlayout.lower.fill import as_number, check_fill, is_zero
from xlayout.lower.moves import views_of
from xlayout.lower.recipe import Recipe, recipe, write_pieces
from xlayout.lower.traced import plan_layout, trace
from xlayout.lower.writes import as_outputs, neighbours, write_of
from xlayout.registry import backend_of
from xlayout.room import make_room

__all__ = ["call", "check_copy", "check_shapes", "refuse_while_tracing", "run"]

_MOST = 1024  # layouts cached by value, and calls cached for each: fill values are unlimited


def call(
    layout: Layout, /, *arrays: Any, out: Any = None, copy: bool | None = True, fill: Any = 0
) -> Any:
    """Run it: one array per input, or a tuple or list of them. See `xlayout.apply`.

    Sharded arrays are left to the framework, which may gather them; `apply` has options for that.
    """
    options = _FRESH if fill is _ZERO or (fill := as_number(fill)) is _ZERO else {"fill": fill}
    if out is None and copy is True:
        if len(arrays) == 1:  # the faster key
            kept = look_up(layout._runs, arrays[0], (), options)
        else:
            kept = look_up(layout._runs, arrays, None, options)
        if kept is not None:
            try:
                return kept(*arrays)
            except (RuntimeError, ValueError):
                common_backend(arrays)  # cache keys cover neither sparsity, device nor deletion
                raise
    elif copy is True and not options:
        write = look_up(layout._runs, arrays, None, _INTO)
        if write is not None and write(arrays, out) is not None:
            return out
    if len(arrays) == 1 and isinstance(arrays[0], (tuple, list)):
        _backend_for(layout, arrays[0])  # refuses a container in it, which may be itself
        return call(layout, *arrays[0], out=out, copy=copy, fill=fill)
    return _run_uncached(_backend_for(layout, arrays), layout, arrays, out, copy, options, fill)


def _backend_for(layout: Layout, arrays: Sequence[Any]) -> Backend:
    if arrays:
        return backend_of(arrays[0], "arrays[0]")
    if not layout.in_shapes:
        raise TypeError("layout: it takes no arrays, so no framework can make its result")
    raise _wrong_shapes(layout, arrays)


def _run_uncached(
    backend: Backend,
    layout: Layout,
    arrays: tuple[Any, ...],
    out: Any,
    copy: bool | None,
    options: dict[str, Any],
    fill: Any,
) -> Any:
    """Run a call that is not cached yet, and cache what ran it."""
    if out is None and copy is True:
        made = constant_call(
            backend, lambda call: layout._constant(program_of_call, call), arrays, (fill,), {}
        )
        if made is not None:
            id(layout)  # see `_traced`
            return made
    common_backend(arrays)
    check_shapes(layout, arrays)
    tracing = backend.tracing(*arrays)
    # Without holes nothing is filled, and not every dtype has a zero.
    if options or (not tracing and layout.has_holes):
        check_fill(arrays[0].dtype, fill)
    if tracing:
        refuse_while_tracing(out, copy)
        return _traced(backend, layout, arrays, fill, views=copy is None)
    if out is None and copy is True:
        return _cached_run(backend, layout, arrays, options, fill)(*arrays)
    made = run(backend, layout, arrays, out, copy, fill)
    if out is not None and backend.find(layout._runs, arrays, None, _INTO) is None:
        write = write_of(backend, layout)
        if write is not None:
            backend.keep(layout._runs, arrays, None, _INTO, write)
    return made


_ZERO = 0  # the default's own object: identity is a faster test than equality
_FRESH: dict[str, Any] = {}  # the options of the usual call
_INTO = {"out": True}  # the options of a write, in keys
_RUNS: dict[Layout, Runs] = {}


def _cached_run(
    backend: Backend, layout: Layout, arrays: tuple[Any, ...], options: dict[str, Any], fill: Any
) -> Run:
    """The cached function for arrays like these; equal layouts share it."""
    asked: CallKey = (arrays[0], (), options) if len(arrays) == 1 else (arrays, None, options)
    make_room(_RUNS, _MOST)
    shared = _RUNS.setdefault(layout, {})
    made = backend.find(shared, *asked)
    if made is None:
        filled = "fill" in options or layout.has_holes

        def recipe_of(*arrays: Any) -> Recipe:
            check_shapes(layout, arrays)
            if filled:
                check_fill(arrays[0].dtype, fill)
            return recipe(layout, common_backend(arrays), fill)

        made = caller(arrays, recipe_of, filled=(fill, "fill") if filled else None)
        make_room(shared, _MOST)
        backend.keep(shared, *asked, made)
    make_room(layout._runs, _MOST)
    backend.keep(layout._runs, *asked, made)
    return made


def _traced(
    backend: Backend, layout: Layout, arrays: Sequence[Any], fill: Any, *, views: bool
) -> Any:
    id(layout)  # makes Dynamo guard the identity of the layout, not only its type
    plan = layout._constant(plan_layout, not backend.immutable, views, is_zero(fill))
    return trace(backend, plan, arrays, fill)


def check_shapes(layout: Layout, arrays: Sequence[Any], name: str | None = None) -> None:
    """Raise ShapeError for arrays of another number or of other shapes than the layout takes."""
    if tuple([x.shape for x in arrays]) == layout.in_shapes:
        return
    if tuple([tuple(x.shape) for x in arrays]) != layout.in_shapes:  # others' may be lists
        raise _wrong_shapes(layout, arrays, name)


def _wrong_shapes(layout: Layout, arrays: Sequence[Any], name: str | None = None) -> ShapeError:
    if len(arrays) != len(layout.in_shapes):
        what = f"{name}: the layout" if name else "layout:"
        return ShapeError(f"{what} takes {len(layout.in_shapes)} arrays, {len(arrays)} given")
    number, x, shape = next(
        (number, x, shape)
        for number, (x, shape) in enumerate(zip(arrays, layout.in_shapes, strict=True))
        if tuple(x.shape) != shape
    )
    which = f"{name or 'arrays'}: {number} is" if len(arrays) > 1 else f"{name or 'x'}: an array"
    return ShapeError(f"{which} of shape {tuple(x.shape)}; the layout takes {tuple(shape)}")


def check_copy(copy: Any) -> None:
    """Refuse anything but True, False and None."""
    if copy is not None and not isinstance(copy, bool):
        raise TypeError(f"copy: {copy!r}; wanted True, False or None")


def refuse_while_tracing(out: Any, copy: bool | None) -> None:
    """Refuse options about memory, which does not exist while a compiler traces."""
    if out is not None:
        raise TypeError(
            "out: cannot be written while tracing; assign the result outside the compiled function"
        )
    if copy is False:
        raise BufferError(
            "copy: False cannot be promised while tracing; use copy=None, or call it outside"
        )


def run(
    backend: Backend, layout: Layout, arrays: Sequence[Any], out: Any, copy: bool | None, fill: Any
) -> Any:
    """A layout on concrete arrays of its shapes: into `out`, or else as a view where it is one."""
    check_copy(copy)
    if out is not None:
        return _into(backend, layout, arrays, out, copy, fill)
    views = _views(backend, layout, arrays)
    if views is not None:
        return views[0] if len(views) == 1 else tuple(views)
    if copy is False:
        reason = _why_no_view(backend, layout, arrays)
        raise BufferError(
            f"copy=False: {layout} is no view of {reason}; use copy=None to allow a copy"
        )
    return call(layout, *arrays, fill=fill)


def _views(backend: Backend, layout: Layout, arrays: Sequence[Any]) -> list[Any] | None:
    """Every output as a view of the one input, or None."""
    if len(arrays) != 1:
        return None
    (x,) = arrays
    strides = backend.view_strides(x)
    if strides is None:
        return None
    views = []
    for offset_strides, shape in zip(views_of(layout, strides), layout.out_shapes, strict=True):
        view = None if offset_strides is None else backend.view(x, *offset_strides, shape)
        if view is None:
            return None
        views.append(view)
    return views


def _why_no_view(backend: Backend, layout: Layout, arrays: Sequence[Any]) -> str:
    seen = [backend.view_strides(x) for x in arrays]
    if None in seen:
        return "arrays with memory that is out of sight"
    if len(seen) == 1 and None not in views_of(layout, seen[0]):
        return f"arrays that {backend.name} can make, of {arrays[0].dtype} with strides {seen}"
    return f"arrays with strides {seen}"


def _into(
    backend: Backend, layout: Layout, arrays: Sequence[Any], out: Any, copy: bool | None, fill: Any
) -> Any:
    if copy is False:
        raise BufferError("copy=False: a result written to out= is a copy; leave one of them out")
    outputs = as_outputs(out)
    if len(outputs) != len(layout.out_shapes):
        raise ShapeError(f"out: {len(outputs)} arrays, the layout makes {len(layout.out_shapes)}")
    kind = backend.kind(arrays[0])
    meeting = None
    for number, (y, shape) in enumerate(zip(outputs, layout.out_shapes, strict=True)):
        if backend.immutable:
            raise TypeError(f"out: cannot be written: {backend.refusal(y, arrays)}")
        its = kind_of(backend, y, "out") if backend_of(y, "out") is backend else None
        if its is None:
            raise TypeError(f"out: {a_type(y)}; wanted the framework of the input, {backend.name}")
        if tuple(y.shape) != shape or its != kind:
            raise ShapeError(
                f"out: {y.dtype} {tuple(y.shape)} on {its[1]}; wanted {kind[0]} {shape} on "
                f"{kind[1]}"
            )
        # With the first, all inputs are judged themselves; with others, only those near them.
        if number == 1:
            meeting = neighbours(backend, arrays)
        near = [arrays[k] for k in meeting(y)] if meeting else arrays
        why = backend.refusal(y, near)
        if why is not None:
            raise ShapeError(f"out: cannot be written: {why}")
    meeting = neighbours(backend, outputs)
    for number, y in enumerate(outputs):
        others = [outputs[k] for k in meeting(y) if k != number]
        if others and backend.refusal(y, others) is not None:
            raise ShapeError("out: cannot be written: it overlaps another of them")
    write_pieces(backend, layout, arrays, outputs, fill)
    return out
