"""Containers of arrays: state dicts and pytrees, mapped leaf by leaf into their own types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from copy import copy
from typing import Any

__all__ = ["mapped"]

_REFUSALS = (TypeError, ValueError, BufferError, OverflowError)
_CONTAINERS: dict[type, bool] = {}


def mapped(function: Callable[[Any], Any], tree: Any, /) -> Any:
    """`tree` with `function` of each leaf in its place, called once for a leaf that is there twice.

    Mappings, lists, tuples and named tuples are walked, and None is an empty one. They keep their
    types, keys and attributes. An error says where its leaf sits: `x['layers'][0]: …`.
    """
    trail: list[Any] = []
    try:
        return _mapped(function, tree, {}, [], trail) if _is_container(tree) else function(tree)
    except _REFUSALS as error:
        if type(error) not in _REFUSALS:  # a framework's own, which may want other arguments
            raise
        where = "x" + "".join(f"[{step!r}]" for step in reversed(trail))
        raise type(error)(f"{where}: {error.args[0]}") from error


def _mapped(
    function: Callable[[Any], Any],
    tree: Any,
    results: dict[int, Any],
    alive: list[Any],
    trail: list[Any],
) -> Any:
    if tree is None:
        return None
    steps: Iterable[Any] = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    children = []
    for step, child in steps:
        try:
            if _CONTAINERS.get(type(child), True) and _is_container(child):
                children.append(_mapped(function, child, results, alive, trail))
                continue
            key = id(child)
            if key not in results:
                results[key] = function(child)
                alive.append(child)  # so that no other leaf gets its id
            children.append(results[key])
        except _REFUSALS:
            trail.append(step)
            raise
    return _like(tree, children)


def _is_container(x: Any) -> bool:
    cls = type(x)
    known = _CONTAINERS.get(cls)
    if known is None:  # asking an abstract class about every leaf would cost more than the leaf
        kinds = (Mapping, list, tuple, type(None))
        known = _CONTAINERS[cls] = issubclass(cls, kinds)
    return known


def _like(tree: Any, children: list[Any]) -> Any:
    """A container like `tree`, with other children."""
    kind: Any = type(tree)
    if isinstance(tree, Mapping):
        items = dict(zip(tree, children, strict=True))
        if kind is dict:
            return items
        if not isinstance(tree, MutableMapping):
            return kind(items)
        mapping = copy(tree)  # keeps a default factory, or the `_metadata` of a state dict
        mapping.update(items)
        return mapping
    if kind is list:
        return children
    return kind._make(children) if hasattr(kind, "_make") else kind(children)
