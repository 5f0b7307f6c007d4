"""Engine: runs one layout function on arrays, and remembers what it worked out for a shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape, axis_of
from xlayout.backend import Backend
from xlayout.lower.fill import check_fill
from xlayout.lower.recipe import Recipe
from xlayout.lower.run import any_tracing, common_backend, refuse_while_tracing, remembered, run
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
        self._recipes: dict[Any, Recipe] = {}

    def one(self, x: Any, options: dict[str, Any]) -> Any:
        """One array in: the recipe is found by shape and options alone."""
        backend = backend_of(x)
        if backend.tracing(x) or self._fill or "out" in options or "copy" in options:
            return self.many((x,), options)
        key = (backend.name, x.shape, *options.items())
        try:
            recipe = self._recipes.get(key)
        except TypeError:  # an option is a list
            return self.many((x,), options)
        if recipe is None:
            layout = self._layout_of(*self._args((tuple(x.shape),)), **options)
            if len(self._recipes) >= _MOST:
                self._recipes.clear()
            recipe = self._recipes[key] = remembered(layout, backend, 0)
        return recipe(x)

    def many(self, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
        """Arrays in, one array or a tuple of arrays out."""
        out, copy = options.pop("out", None), options.pop("copy", True)
        backend = common_backend(arrays)
        fill = options.get(self._fill, 0) if self._fill else 0
        check_fill(arrays[0].dtype, fill)
        if any_tracing(backend, arrays):
            refuse_while_tracing(out, copy)
            return self._traced(backend, arrays, options, fill)
        layout = self._layout_of(*self._args(tuple(tuple(x.shape) for x in arrays)), **options)
        return run(backend, layout, arrays, out, copy, fill)

    def _args(self, shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        return (shapes,) if self._packed else shapes

    def _traced(
        self, backend: Backend, arrays: Sequence[Any], options: dict[str, Any], fill: Any
    ) -> Any:
        shapes = []
        for x in arrays:
            touched = self._touched(len(x.shape), options)
            shapes.append(stand_in(backend, x.shape, touched, self.name))
        fixed = tuple([(k, tuple(v) if isinstance(v, list) else v) for k, v in options.items()])
        plan = backend.constant(plan_op, self._layout_of, self._args(tuple(shapes)), fixed)
        outputs = trace(backend, plan, arrays, fill)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
