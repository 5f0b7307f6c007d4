"""Calls: the function that runs on arrays of one type, and remembers a recipe for their shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xlayout.backend import Backend
from xlayout.errors import SizeError
from xlayout.lower.recipe import Recipe
from xlayout.registry import backend_of

__all__ = ["caller", "check_alike", "common_backend"]

_MOST = 4096  # recipes one function remembers; a program with more shapes than this starts over


def caller(
    arrays: Sequence[Any],
    recipe_of: Callable[..., Recipe],
    traced: Callable[..., Any],
    spread: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """What runs on as many arrays as these, when the first is of the same type.

    Args:
        arrays: those of the first call.
        recipe_of: arrays -> the recipe for their shapes, called once for each.
        traced: takes arrays that a compiler records.
        spread: takes arrays that many devices hold; None: they are like any other.
    """
    backend = backend_of(arrays[0])
    made = backend.compiled(
        lambda *xs: recipe_of(*xs)(*xs),
        traced if spread is None else spread,
        type(arrays[0]),
        len(arrays),
        spread is not None,
    )
    if made is not None:
        return made
    if spread is not None and backend.spread(arrays[0]):
        return spread
    shapes_of, recipes = backend.shapes, dict[Any, Recipe]()

    def learn(key: Any, arrays: Sequence[Any]) -> Recipe:
        if len(recipes) >= _MOST:
            recipes.clear()
        recipe = recipes[key] = recipe_of(*arrays)
        return recipe

    def one(x: Any) -> Any:
        try:
            recipe = recipes.get(x.shape)
        except TypeError:  # a size that is no number yet has no hash
            return traced(x)
        return (recipe or learn(x.shape, (x,)))(x)

    def several(*arrays: Any) -> Any:
        shapes = shapes_of(arrays)
        if shapes is None:
            check_alike(arrays, backend)
            shapes = tuple([x.shape for x in arrays])
        try:
            recipe = recipes.get(shapes)
        except TypeError:
            return traced(*arrays)
        try:
            return (recipe or learn(shapes, arrays))(*arrays)
        except RuntimeError:  # of another device: not asked before each call, it takes too long
            check_alike(arrays, backend)
            raise

    return one if len(arrays) == 1 else several


def common_backend(arrays: Sequence[Any]) -> Backend:
    """The one backend of all arrays, which must agree in dtype and device.

    Raises:
        TypeError: naming the two that differ.
        SizeError: for no arrays at all.
    """
    if not arrays:
        raise SizeError("arrays: none given; wanted at least one")
    backend = backend_of(arrays[0])
    if len(arrays) > 1:
        check_alike(arrays, backend)
    return backend


def check_alike(arrays: Sequence[Any], backend: Backend) -> None:
    """Refuse arrays that differ in framework, dtype or device.

    Raises:
        TypeError: naming the two that differ.
    """
    kind = backend.kind(arrays[0])
    for number, x in enumerate(arrays):
        other = backend_of(x)
        if other is not backend:
            raise TypeError(
                f"arrays: 0 is {backend.name}, {number} is {other.name}; one framework per call "
                f"(xlayout.to_{backend.name})"
            )
        if other.kind(x) != kind:
            raise TypeError(
                f"arrays: 0 is {kind[0]} on {kind[1]}, {number} is {x.dtype} on "
                f"{other.kind(x)[1]}; one of each per call"
            )
