"""Containers of arrays: state dicts and pytrees, mapped leaf by leaf, keeping their types."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from types import MappingProxyType, NoneType
from typing import Any, TypeAlias

from xlayout.algebra.shapes import a_type
from xlayout.registry import MOST_TYPES, SERVED, backend_module
from xlayout.room import make_room

__all__ = ["mapped"]

_REFUSALS = (TypeError, ValueError, BufferError, OverflowError)
_PLAIN = (dict, list, tuple, NoneType, MappingProxyType)
_CONTAINERS: dict[type, bool] = {}

_Node: TypeAlias = tuple[list[tuple[str, Any]], Callable[[list[Any]], Any]]


def mapped(function: Callable[[Any], Any], tree: Any, /) -> Any:
    """`tree` with `function` applied to each leaf, once for a leaf that occurs twice.

    Dicts, lists, tuples and named tuples are traversed, and keep their types, keys and attributes;
    None is an empty container. Classes registered with JAX are traversed too, and JAX rebuilds
    them. Any other mapping comes back as a dict: there is no general way to make another, and a
    copy may share its contents. Errors say where the leaf is: `x['layers'][0]: …`.
    """
    trail: list[str] = []
    try:
        return _mapped(function, tree, {}, trail) if _is_container(tree) else function(tree)
    except _REFUSALS as error:
        if type(error) not in _REFUSALS:  # a framework's own class, which may take other arguments
            raise
        where = "x" + "".join(reversed(trail))
        raise type(error)(f"{where}: {error}") from error


def _mapped(
    function: Callable[[Any], Any],
    tree: Any,
    results: dict[int, tuple[Any, Any]],
    trail: list[str],
) -> Any:
    """The recursion of `mapped`; `results` holds the leaves as well, so that ids are not reused."""
    if tree is None:
        return None
    if id(tree) in results:
        raise ValueError(f"{a_type(tree)} inside itself; wanted a tree")
    results[id(tree)] = tree, tree  # as long as it is walked
    node = None if isinstance(tree, _PLAIN) else _registered(tree)
    if node:
        steps: Iterable[Any] = node[0]
    else:
        steps = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    children = []
    for step, child in steps:
        try:
            if _CONTAINERS.get(type(child), True) and _is_container(child):
                children.append(_mapped(function, child, results, trail))
                continue
            key = id(child)
            if key not in results:
                results[key] = function(child), child
            children.append(results[key][0])
        except _REFUSALS:
            trail.append(step if node else f"[{step!r}]")
            raise
    del results[id(tree)]
    return node[1](children) if node else _like(tree, children)


def _is_container(x: Any) -> bool:
    cls = type(x)
    known = _CONTAINERS.get(cls)
    if known is None:  # cached: checks of abstract classes are slow
        known = issubclass(cls, (*_PLAIN, Mapping)) or _registered(x) is not None
        if known or cls in SERVED:  # other classes may be registered later
            make_room(_CONTAINERS, MOST_TYPES)
            _CONTAINERS[cls] = known
    return known


def _registered(x: Any) -> _Node | None:
    """The children of a class registered with JAX, and a function that rebuilds it from others."""
    if sys.modules.get("jax") is None:  # not imported, or blocked
        return None
    opened: _Node | None = backend_module("jax", "pytree").opened(x)
    return opened


def _like(tree: Any, children: list[Any]) -> Any:
    """A container like `tree`, with other children."""
    kind: Any = type(tree)
    if isinstance(tree, Mapping):
        items = dict(zip(tree, children, strict=True))
        if kind is MappingProxyType:
            return MappingProxyType(items)
        if kind is dict or not isinstance(tree, dict):
            return items
        mapping = copy(tree)  # keeps a default factory, or the `_metadata` of a state dict
        for key, child in items.items():  # not update(), which a class may override: Counter adds
            dict.__setitem__(mapping, key, child)
        attributes = getattr(mapping, "__dict__", {})
        for name, value in list(attributes.items()):  # some classes hold their items there as well
            if name in items and value is dict.get(tree, name):
                attributes[name] = items[name]
        return mapping
    if isinstance(tree, list):
        made = children if kind is list else copy(tree)
        list.__setitem__(made, slice(None), children)
        return made
    if hasattr(kind, "n_fields"):  # a struct sequence, as from torch.max: not for `tuple`
        return kind(children)
    made = kind._make(children) if hasattr(kind, "_make") else tuple.__new__(kind, children)
    if hasattr(made, "__dict__"):
        vars(made).update(vars(tree))
    return made
