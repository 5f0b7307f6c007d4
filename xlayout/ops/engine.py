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
        if self._fill is None and not backend.tracing(x):
            recipe = self._recall((backend.name, x.shape, *options.items()))
            if recipe is not None:
                return recipe(x)
        return self.many((x,), options)

    def many(self, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
        """Arrays in, one array or a tuple of arrays out."""
        backend = common_backend(arrays)
        if any_tracing(backend, arrays):
            return self._traced(backend, arrays, options)
        shapes = [x.shape for x in arrays]
        key: tuple[Any, ...] = (backend.name, *shapes, *options.items())
        if self._fill is not None:  # 0, 0.0, -0.0 and False are equal as keys, not as fills
            key += (arrays[0].dtype, repr(options.get(self._fill)))
        recipe = self._recall(key)
        if recipe is not None:
            return recipe(*arrays)
        out, copy = options.pop("out", None), options.pop("copy", True)
        fill = self._checked_fill(arrays, options)
        layout = self._layout_of(*self._args(tuple(map(tuple, shapes))), **options)
        if out is None and copy is True:
            return self._remember(key, remembered(layout, backend, fill))(*arrays)
        return run(backend, layout, arrays, out, copy, fill)

    def _recall(self, key: tuple[Any, ...]) -> Recipe | None:
        try:
            return self._recipes.get(key)
        except TypeError:  # an option is a list, or an array to write into
            return None

    def _remember(self, key: tuple[Any, ...], recipe: Recipe) -> Recipe:
        if len(self._recipes) >= _MOST:
            self._recipes.clear()
        try:
            self._recipes[key] = recipe
        except TypeError:  # an option is a list
            return recipe
        return recipe

    def _checked_fill(self, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
        if self._fill is None:
            return 0
        fill = options.get(self._fill, 0)
        check_fill(arrays[0].dtype, fill)
        return fill

    def _args(self, shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        return (shapes,) if self._packed else shapes

    def _traced(self, backend: Backend, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
        refuse_while_tracing(options.pop("out", None), options.pop("copy", True))
        fill = self._checked_fill(arrays, options)
        shapes = []
        for x in arrays:
            touched = self._touched(len(x.shape), options)
            shapes.append(stand_in(backend, x.shape, touched, self.name))
        fixed = tuple([(k, tuple(v) if isinstance(v, list) else v) for k, v in options.items()])
        plan = backend.constant(plan_op, self._layout_of, self._args(tuple(shapes)), fixed)
        return trace(backend, plan, arrays, fill)
