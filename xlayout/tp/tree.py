"""Tree: nested dicts of weights as one dict of dotted names, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xlayout.errors import LayoutError

__all__ = ["named", "renamed"]


def named(weights: Any, argument: str) -> dict[str, Any]:
    """All leaves by their dotted names, in order.

    Raises:
        TypeError: for something that is neither a mapping nor a module with a state dict.
        LayoutError: for two leaves of one name.
    """
    if not isinstance(weights, Mapping) and callable(getattr(weights, "state_dict", None)):
        weights = weights.state_dict()
    if not isinstance(weights, Mapping):
        raise TypeError(
            f"{argument}: a {type(weights).__name__}; wanted a dict of names and arrays, nested or "
            "not, or a module"
        )
    found: dict[str, Any] = {}
    _walk(weights, "", found, argument)
    return found


def _walk(weights: Mapping[Any, Any], before: str, found: dict[str, Any], argument: str) -> None:
    for key, value in weights.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            _walk(value, f"{name}.", found, argument)
        elif name in found:
            raise LayoutError(f"{argument}: {name!r} is there twice, once with a dot in a key")
        else:
            found[name] = value


def renamed(like: Mapping[Any, Any], leaf: Callable[[str], Any], before: str = "") -> Any:
    """Nested dicts with the keys of others, and `leaf(dotted name)` for what stands there."""
    return {
        key: renamed(value, leaf, f"{before}{key}.")
        if isinstance(value, Mapping)
        else leaf(f"{before}{key}")
        for key, value in like.items()
    }
