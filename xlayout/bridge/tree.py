"""Containers of arrays: state dicts and pytrees, mapped leaf by leaf into their own types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from copy import copy
from itertools import islice
from typing import Any

__all__ = ["mapped"]

_REFUSALS = (TypeError, ValueError, BufferError, OverflowError)
_CONTAINERS: dict[type, bool] = {}


def mapped(function: Callable[[Any], Any], tree: Any, /) -> Any:
    """`tree` with `function` of each leaf in its place, called once for a leaf that is there twice.

    Mappings, lists, tuples and named tuples are walked, and None is an empty one. They keep their
    types, keys and attributes. An error says where its leaf sits: `x['layers'][0]: …`.
    """
    number = 0
    try:
        if not _is_container(tree):
            return function(tree)
        leaves = list(_leaves(tree))
        results: dict[int, Any] = {}
        for number, leaf in enumerate(leaves):  # noqa: B007 -- for the error
            if id(leaf) not in results:
                results[id(leaf)] = function(leaf)
    except _REFUSALS as error:
        if type(error) not in _REFUSALS:  # a framework's own, which may want other arguments
            raise
        where = next(islice(_paths(tree, "x"), number, None))
        raise type(error)(f"{where}: {error.args[0]}") from error
    return _rebuilt(tree, iter([results[id(leaf)] for leaf in leaves]))


def _is_container(x: Any) -> bool:
    cls = type(x)
    known = _CONTAINERS.get(cls)
    if known is None:  # asking an abstract class about every leaf would cost more than the leaf
        kinds = (Mapping, list, tuple, type(None))
        known = _CONTAINERS[cls] = issubclass(cls, kinds)
    return known


def _leaves(tree: Any) -> Iterator[Any]:
    children = tree.values() if isinstance(tree, Mapping) else tree or ()
    for child in children:
        if _is_container(child):
            yield from _leaves(child)
        else:
            yield child


def _paths(tree: Any, at: str) -> Iterator[str]:
    if not _is_container(tree):
        yield at
    elif isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from _paths(child, f"{at}[{key!r}]")
    else:
        for i, child in enumerate(tree or ()):
            yield from _paths(child, f"{at}[{i}]")


def _rebuilt(tree: Any, values: Iterator[Any]) -> Any:
    if not _is_container(tree):
        return next(values)
    if tree is None:
        return None
    kind: Any = type(tree)
    if isinstance(tree, Mapping):
        items = {key: _rebuilt(child, values) for key, child in tree.items()}
        if kind is dict:
            return items
        if not isinstance(tree, MutableMapping):
            return kind(items)
        mapping = copy(tree)  # keeps a default factory, or the `_metadata` of a state dict
        mapping.update(items)
        return mapping
    children = [_rebuilt(child, values) for child in tree]
    if kind is list:
        return children
    return kind._make(children) if hasattr(kind, "_make") else kind(children)
