"""Engine: runs one layout function on arrays, and remembers what it worked out for a shape."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape, axis_of
from xlayout.backend import Backend
from xlayout.lower.fill import check_fill
from xlayout.lower.recipe import Recipe
from xlayout.lower.run import common_backend, refuse_while_tracing, remembered, run
from xlayout.lower.traced import plan_op, stand_in, trace
from xlayout.registry import backend_of

__all__ = ["Engine", "Touched", "axis_only", "everything", "nothing"]

_MOST = 4096  # recipes an op remembers; a program with more shapes than this starts over

Touched = Callable[[int, dict[str, Any]], frozenset[int]]
"""(number of axes, options) -> axes whose size the layout depends on; the others may be dynamic."""


def axis_only(ndim: int, options: dict[str, Any]) -> frozenset[int]:
    """Only `axis=` is touched."""
    return frozenset({axis_of(options.get("axis", 0), ndim)})


def everything(ndim: int, _options: dict[str, Any]) -> frozenset[int]:
    """Every axis is touched."""
    return frozenset(range(ndim))


def nothing(_ndim: int, _options: dict[str, Any]) -> frozenset[int]:
    """No axis is touched: whole axes move."""
    return frozenset()


class Engine:
    """What an op does with arrays.

    Args:
        layout_of: shapes and options -> Layout.
        touched: the axes whose size that depends on.
        fill: the option that holds the value of holes.
        packed: whether `layout_of` takes all shapes as one tuple.
    """

    def __init__(
        self,
        layout_of: Callable[..., Layout],
        touched: Touched,
        fill: str | None = None,
        *,
        packed: bool = False,
    ) -> None:
        self.name = layout_of.__name__
        self._layout_of = layout_of
        self._touched = touched
        self._fill = fill
        self._packed = packed
        parameters = inspect.signature(layout_of).parameters.values()
        self._positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self._recipes: dict[Any, Recipe] = {}

    def one(self, x: Any, options: dict[str, Any], args: tuple[Any, ...] = ()) -> Any:
        """One array in: the recipe is found by shape and options alone; `args` are options too."""
        backend = backend_of(x)
        if backend.tracing(x):
            return self._traced(backend, (x,), self._named(args, options))
        key: tuple[Any, ...] | None = (backend.name, x.shape, args, *options.items())
        if self._fill in options:
            key = self._exact(key, x.dtype, options)
        try:
            recipe = self._recipes.get(key)
        except TypeError:  # an option is a list, or an array to write into
            recipe = key = None
        if recipe is None:
            return self._run(backend, (x,), self._named(args, options), key)
        return recipe(x)

    def many(self, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
        """Arrays in, one array or a tuple of arrays out."""
        backend = common_backend(arrays)
        if backend.tracing(*arrays):
            return self._traced(backend, arrays, options)
        key: tuple[Any, ...] | None = (backend.name, *[x.shape for x in arrays], *options.items())
        if self._fill in options:
            key = self._exact(key, arrays[0].dtype, options)
        try:
            recipe = self._recipes.get(key)
        except TypeError:
            recipe = key = None
        if recipe is None:
            return self._run(backend, arrays, options, key)
        return recipe(*arrays)

    def _exact(self, key: Any, dtype: Any, options: dict[str, Any]) -> tuple[Any, ...]:
        """With what tells fills apart: 0, 0.0, -0.0 and False are one key; a dtype may refuse."""
        return (*key, dtype, repr(options[str(self._fill)]))

    def _named(self, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
        """Options given by position, under their names: `permute_dims(x, (1, 0))`."""
        if len(args) > len(self._positional):
            raise TypeError(f"{self.name}: {len(args)} options by position; give options by name")
        return {**dict(zip(self._positional, args, strict=False)), **options}

    def _run(
        self,
        backend: Backend,
        arrays: Sequence[Any],
        options: dict[str, Any],
        key: tuple[Any, ...] | None,
    ) -> Any:
        """The whole way, from shapes to a layout to arrays; remembered under `key`."""
        if "comm" in options or "out_sharding" in options:
            return self._sharded(arrays, options)
        out, copy = options.pop("out", None), options.pop("copy", True)
        fill = self._checked_fill(arrays, options)
        shapes = tuple([tuple(x.shape) for x in arrays])
        layout = self._layout_of(*self._args(shapes), **options)
        if key is None or out is not None or copy is not True:
            return run(backend, layout, arrays, out, copy, fill)
        if len(self._recipes) >= _MOST:
            self._recipes.clear()
        recipe = self._recipes[key] = remembered(layout, backend, fill)
        return recipe(*arrays)

    def _sharded(self, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
        """On arrays that many devices hold, as the caller wants it moved and laid."""
        from xlayout.shard.sharded import run_sharded  # one device needs nothing of it

        if options.pop("out", None) is not None or options.pop("copy", True) is not True:
            raise TypeError("out, copy: the result of a sharded op is fresh; leave them away")
        where = {k: options.pop(k) for k in ("comm", "out_sharding") if k in options}
        fill = self._checked_fill(arrays, options)
        layout = self._layout_of(*self._args(tuple([tuple(x.shape) for x in arrays])), **options)
        return run_sharded(layout, arrays, fill=fill, **where)

    def _checked_fill(self, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
        if self._fill is None:
            return 0
        fill = options.get(self._fill, 0)
        check_fill(arrays[0].dtype, fill)
        return fill

    def _args(self, shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        return (shapes,) if self._packed else shapes

    def _traced(self, backend: Backend, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
        if "comm" in options or "out_sharding" in options:
            return self._sharded(arrays, options)
        refuse_while_tracing(options.pop("out", None), options.pop("copy", True))
        fill = self._checked_fill(arrays, options)
        shapes = []
        for x in arrays:
            touched = self._touched(len(x.shape), options)
            shapes.append(stand_in(backend, x.shape, touched, self.name))
        fixed = tuple([(k, tuple(v) if isinstance(v, list) else v) for k, v in options.items()])
        plan = backend.constant(plan_op, self._layout_of, self._args(tuple(shapes)), fixed)
        return trace(backend, plan, arrays, fill)
