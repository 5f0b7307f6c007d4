"""Containers of arrays: state dicts and pytrees, walked and rebuilt with their own types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from copy import copy
from itertools import islice
from typing import Any

__all__ = ["is_container", "leaves", "path", "rebuild"]

_CONTAINERS: dict[type, bool] = {}


def is_container(x: Any) -> bool:
    """Whether `x` is walked into: a mapping, a list, a tuple, or None, which is an empty one."""
    cls = type(x)
    known = _CONTAINERS.get(cls)
    if known is None:  # asking an abstract class about every leaf would cost more than the leaf
        kinds = (Mapping, list, tuple, type(None))
        known = _CONTAINERS[cls] = issubclass(cls, kinds)
    return known


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves of `tree`, in order."""
    children = tree.values() if isinstance(tree, Mapping) else tree or ()
    for child in children:
        if is_container(child):
            yield from leaves(child)
        else:
            yield child


def rebuild(tree: Any, values: Iterator[Any]) -> Any:
    """`tree` with its leaves replaced by `values`: same types, same keys, same attributes."""
    if not is_container(tree):
        return next(values)
    if tree is None:
        return None
    kind: Any = type(tree)
    if isinstance(tree, Mapping):
        items = {key: rebuild(child, values) for key, child in tree.items()}
        if kind is dict:
            return items
        if not isinstance(tree, MutableMapping):
            return kind(items)
        mapping = copy(tree)  # keeps a default factory, or the `_metadata` of a state dict
        mapping.update(items)
        return mapping
    children = [rebuild(child, values) for child in tree]
    if kind is list:
        return children
    return kind._make(children) if hasattr(kind, "_make") else kind(children)


def path(tree: Any, number: int, root: str = "x") -> str:
    """Where leaf `number` of `tree` sits, as an expression: `x['layers'][0]`."""
    return next(islice(_paths(tree, root), number, None))


def _paths(tree: Any, at: str) -> Iterator[str]:
    if not is_container(tree):
        yield at
    elif isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from _paths(child, f"{at}[{key!r}]")
    else:
        for i, child in enumerate(tree or ()):
            yield from _paths(child, f"{at}[{i}]")
