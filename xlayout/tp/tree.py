"""Tree: nested weights as one dict of dotted names, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from xlayout.algebra.shapes import a_type, is_size
from xlayout.errors import LayoutError

__all__ = ["flatten", "unflatten"]


def flatten(weights: Any, argument: str) -> dict[str, Any]:
    """All leaves by their dotted names, in order; items of a list are named by their index.

    Raises:
        TypeError: for something that is neither a mapping nor a module with a state dict.
        LayoutError: for two leaves of one name.
    """
    own = getattr(weights, "state_dict", None)
    if not isinstance(weights, Mapping | type) and callable(own):
        weights = own()
    if not isinstance(weights, Mapping):
        raise TypeError(
            f"{argument}: {a_type(weights)}; wanted a dict of names and arrays, nested or "
            "not, or a module"
        )
    found: dict[str, Any] = {}
    for name, value in _leaves(weights.items(), ""):
        if name in found:
            raise LayoutError(f"{argument}: {name!r} is there twice, once with a dot in a key")
        found[name] = value
    return found


def _branches(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """The children of a node; None for a leaf, such as a shape: a tuple or list of ints."""
    if isinstance(value, Mapping):
        return value.items()
    if type(value) in (list, tuple) and any(map(_is_nested, value)):
        return enumerate(value)
    return None


def _is_nested(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple)) or (
        hasattr(value, "shape") and not is_size(value)
    )


def _leaves(branches: Iterable[tuple[Any, Any]], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in branches:
        name, inner = f"{before}{key}", _branches(value)
        if inner is None:
            yield name, value
        else:
            yield from _leaves(inner, f"{name}.")


def unflatten(like: Any, leaf: Callable[[str], Any], before: str = "") -> Any:
    """The inverse: `leaf(dotted name)` in the place of every leaf of `like`."""
    branches = _branches(like)
    if branches is None:
        return leaf(before.removesuffix("."))
    made = {key: unflatten(value, leaf, f"{before}{key}.") for key, value in branches}
    return made if isinstance(like, Mapping) else type(like)(made.values())
