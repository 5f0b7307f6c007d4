"""Engine: runs one layout function on arrays, and caches what runs each kind of call.

`dispatch` makes the functions that users call from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape
from xlayout.backend import Backend, CallKey, Runs
from xlayout.lower.calls import any_sharded, caller, common_backend, look_up
from xlayout.lower.constant_call import constant_call
from xlayout.lower.donated import run_donated
from xlayout.lower.fill import check_fill, is_zero
from xlayout.lower.named import name_of
from xlayout.lower.recipe import Recipe, recipe
from xlayout.lower.run import refuse_while_tracing, run
from xlayout.lower.traced import fixed, plan_op, stand_ins, trace
from xlayout.lower.writes import is_nested, write_of
from xlayout.ops.options import (
    RUN,
    by_name,
    check_memory_options,
    has_sharding_options,
    is_plain,
    plain,
    refuse_out_and_views,
    runs_sharded,
    sharding_options,
)
from xlayout.ops.programs import program_named, programs
from xlayout.ops.touched import Touched
from xlayout.registry import backend_of
from xlayout.room import make_room

__all__ = ["Engine", "Nested"]

_MOST = 4096  # cached calls, and cached layouts, of one op

Nested = Callable[[int, dict[str, Any]], Callable[[Any], Any] | None]
"""(number of outputs, options) -> function from the result to what the op returns, or None."""


class Engine:
    """Runs an op on arrays.

    Args:
        layout_of: shapes and options -> Layout.
        touched: the axes whose size the layout depends on.
        fill: the option with the fill value, if there is one.
        packed: whether `layout_of` takes all shapes as one tuple.
        nested: the structure of the results, unless it is one array or a tuple.
        names: the names of the arrays in error messages: one for all, or one for each.
    """

    def __init__(
        self,
        layout_of: Callable[..., Layout],
        touched: Touched,
        fill: str | None = None,
        *,
        packed: bool = False,
        nested: Nested | None = None,
        names: str | Sequence[str] = ("x",),
    ) -> None:
        self.name = layout_of.__name__
        self._layout_of = layout_of
        self._layout_name = name_of(layout_of)
        self._touched = touched
        self._fill = fill
        self.packed = packed
        self._nested = nested
        self.names = names
        parameters = inspect.signature(layout_of).parameters.values()
        positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self.named = partial(by_name, self.name, positional)
        self._program = name_of(programs(layout_of, self.named, fill, packed))
        self.runs: Runs = {}
        self._layouts: dict[Any, Layout] = {}

    def backend(self, arrays: Sequence[Any]) -> Backend:
        """The one backend of all arrays; errors use the op's names for them."""
        return common_backend(arrays, self.names)

    def run_uncached(
        self,
        backend: Backend,
        arrays: tuple[Any, ...],
        args: tuple[Any, ...] | None,
        options: dict[str, Any],
    ) -> Any:
        """Run a call that is not cached yet, or that a compiler traces.

        Args:
            backend: the backend of the first array.
            arrays: all arrays.
            args: positional options of a function of one array; None for a function of several.
            options: keyword options.
        """
        made = constant_call(
            backend, lambda call: program_named(self._program, call), arrays, args or (), options
        )
        if made is not None:
            if self._nested is None:
                return made
            return self._shaped(made, self.named(args, options) if args else options)
        own = [value for name, value in options.items() if name not in RUN]
        if all(map(is_plain, (*own, *(args or ())))):
            return self._run_and_keep(arrays, args, options)
        # Such a call has no key, or another one than the same call with plain values.
        args = args and tuple(map(plain, args))
        options = {k: v if k in RUN else plain(v) for k, v in options.items()}
        x = arrays if args is None else arrays[0]
        run = look_up(self.runs, x, args, options)
        if run is None:
            return self._run_and_keep(arrays, args, options)
        out = options.get("out")
        return run(*arrays) if out is None else run(arrays, out)

    def _run_and_keep(
        self, arrays: tuple[Any, ...], args: tuple[Any, ...] | None, given: dict[str, Any]
    ) -> Any:
        """Check the arguments, make the function for such calls, run it and cache it."""
        options = self.named(args, given) if args else given
        x = arrays if args is None else arrays[0]  # as in its key
        out, copy = options.get("out"), options.get("copy", True)
        donate = options.get("donate", False)
        own = {name: value for name, value in options.items() if name not in RUN}
        layout = partial(self._layout, arrays, own)
        sharding = sharding_options(options, layout)
        check_memory_options(out, copy, donate, layout)
        backend = common_backend(arrays, self.names if args is None else ("x",))
        if donate:
            return self._shaped(self._donated(arrays, own, sharding), own)
        if out is not None or copy is not True:
            made = self._into_or_shared(arrays, own, out, copy, sharding)
            if out is not None:
                self._keep_write((x, args, given), layout(), own)
            return self._shaped(made, own)
        unknown = sharding.get("comm") == "local" and any_sharded(backend, arrays) is None
        if unknown or has_sharding_options(sharding) or backend.tracing(*arrays):
            return self._shaped(self._traced_or_sharded(arrays, own, sharding), own)
        run = caller(
            arrays,
            lambda *xs: self._recipe(xs, own),
            lambda *xs: self._shaped(self._traced_or_sharded(xs, own, sharding), own),
            None if self._fill is None else (own.get(self._fill, 0), self._fill),
        )
        result = run(*arrays)  # a failing call is not cached
        make_room(self.runs, _MOST)
        backend_of(arrays[0]).keep(self.runs, x, args, given, run)
        return result

    def _keep_write(self, asked: CallKey, layout: Layout, own: dict[str, Any]) -> None:
        """Cache a function that writes into the `out` of later calls like this one."""
        x, args, given = asked
        backend = backend_of(x[0] if args is None else x)
        there = backend.find(self.runs, *asked)  # it was found, but could not write these arrays
        filled = layout.has_holes and not is_zero(own.get(self._fill or "", 0))
        if there is not None or filled or (write := write_of(backend, layout)) is None:
            return
        told = given | {"out": None}  # without the array, which the cache would keep alive

        def again(arrays: tuple[Any, ...], out: Any) -> Any:
            if write(arrays, out) is None:
                return self._run_and_keep(arrays, args, told | {"out": out})
            return out if self._nested is None else self._shaped(out, own)

        make_room(self.runs, _MOST)
        backend.keep(self.runs, *asked, again)

    def _recipe(self, arrays: Sequence[Any], options: dict[str, Any]) -> Recipe:
        """The recipe for arrays of these shapes."""
        backend, layout = self.backend(arrays), self._layout(arrays, options)
        made = recipe(layout, backend, self._checked_fill(arrays, options))
        nest = self._nested and self._nested(len(layout.out_shapes), options)
        return (lambda *xs: nest(made(*xs))) if nest else made

    def _shaped(self, made: Any, options: dict[str, Any]) -> Any:
        """A result in the structure that the op returns; recipes do this themselves."""
        if self._nested is None or is_nested(made):  # the caller's own `out`
            return made
        several = made if isinstance(made, (tuple, list)) else (made,)
        nest = self._nested(len(several), options)
        return nest(several[0] if len(several) == 1 else several) if nest else made

    def _into_or_shared(
        self,
        arrays: tuple[Any, ...],
        options: dict[str, Any],
        out: Any,
        copy: bool | None,
        sharding: dict[str, Any],
    ) -> Any:
        """Write into `out`, or share the memory of the input."""
        backend = backend_of(arrays[0])
        if any_sharded(backend, arrays) or has_sharding_options(sharding):
            refuse_out_and_views(out, copy)
            return self._traced_or_sharded(arrays, options, sharding)
        if backend.tracing(*arrays):
            refuse_while_tracing(out, copy)
            return self._traced_or_sharded(arrays, options, sharding, views=True)
        fill = self._checked_fill(arrays, options)
        return run(backend, self._layout(arrays, options), arrays, out, copy, fill)

    def _donated(
        self, arrays: tuple[Any, ...], options: dict[str, Any], sharding: dict[str, Any]
    ) -> Any:
        """Run in the memory of the arrays, if possible."""
        backend = backend_of(arrays[0])
        if has_sharding_options(sharding) or any_sharded(backend, arrays):
            raise TypeError("donate: the result of a sharded op is fresh; leave it out")
        if backend.tracing(*arrays):
            raise TypeError(
                "donate: cannot be promised while tracing; donate to the compiled function"
            )
        fill = self._checked_fill(arrays, options)
        return run_donated(backend, self._layout(arrays, options), arrays, fill)

    def _traced_or_sharded(
        self,
        arrays: Sequence[Any],
        options: dict[str, Any],
        sharding: dict[str, Any],
        *,
        views: bool = False,
    ) -> Any:
        """Run on tracers, or on sharded arrays."""
        backend = self.backend(arrays)
        if runs_sharded(any_sharded(backend, arrays), sharding):
            from xlayout.shard.sharded import run_op  # not needed on one device

            fill = self._checked_fill(arrays, options)
            return run_op(self._layout_name, self.packed, options, arrays, fill=fill, **sharding)
        return self._traced(backend, arrays, options, views)

    def _layout(self, arrays: Sequence[Any], options: dict[str, Any]) -> Layout:
        shapes = tuple([tuple(x.shape) for x in arrays])
        if not all(map(is_plain, options.values())):  # may be mutable
            return self._layout_of(*self._args(shapes), **options)
        key = shapes, repr(options)  # 3.0 equals 3, but is not a valid block
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layout_of(*self._args(shapes), **options)
            make_room(self._layouts, _MOST)
            self._layouts[key] = layout
        return layout

    def _checked_fill(self, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
        if self._fill is None:
            return 0
        fill = options.get(self._fill, 0)
        check_fill(arrays[0].dtype, fill, self._fill)
        return fill

    def _args(self, shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        return (shapes,) if self.packed else shapes

    def _traced(
        self, backend: Backend, arrays: Sequence[Any], options: dict[str, Any], views: bool
    ) -> Any:
        fill = self._checked_fill(arrays, options)
        # Layouts do not depend on the fill value, which may stay dynamic.
        options = {k: fixed(backend, value) for k, value in options.items() if k != self._fill}
        given = [x.shape for x in arrays]
        touched = [self._touched(len(shape), options) for shape in given]
        shapes = stand_ins(backend, given, touched, self.name)
        told = self._layout_name, self._args(tuple(shapes)), tuple(options.items())
        plan = plan_op(*told, not backend.immutable, views, is_zero(fill))
        return trace(backend, plan, arrays, fill)
