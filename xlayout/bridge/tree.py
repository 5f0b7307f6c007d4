"""Containers of arrays: state dicts and pytrees, mapped leaf by leaf into their own types."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from types import MappingProxyType, NoneType
from typing import Any, TypeAlias

from xlayout.registry import SERVED, verbs

__all__ = ["mapped"]

_REFUSALS = (TypeError, ValueError, BufferError, OverflowError)
_PLAIN = (dict, list, tuple, NoneType, MappingProxyType)
_CONTAINERS: dict[type, bool] = {}

_Node: TypeAlias = tuple[list[tuple[str, Any]], Callable[[list[Any]], Any]]


def mapped(function: Callable[[Any], Any], tree: Any, /) -> Any:
    """`tree` with `function` of each leaf in its place, called once for a leaf that is there twice.

    Dicts, lists, tuples and named tuples are walked, and keep their types, keys and attributes;
    None is an empty one. Classes registered with JAX are walked too, and JAX builds them anew. Any
    other mapping comes back as a dict: nobody knows how to make another, and a copy may share
    what it holds. An error says where its leaf sits: `x['layers'][0]: …`.
    """
    trail: list[str] = []
    try:
        return _mapped(function, tree, {}, [], trail) if _is_container(tree) else function(tree)
    except _REFUSALS as error:
        if type(error) not in _REFUSALS:  # a framework's own, which may want other arguments
            raise
        where = "x" + "".join(reversed(trail))
        raise type(error)(f"{where}: {error.args[0]}") from error


def _mapped(
    function: Callable[[Any], Any],
    tree: Any,
    results: dict[int, Any],
    alive: list[Any],
    trail: list[str],
) -> Any:
    if tree is None:
        return None
    node = None if isinstance(tree, _PLAIN) else _registered(tree)
    if node:
        steps: Iterable[Any] = node[0]
    else:
        steps = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
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
            trail.append(step if node else f"[{step!r}]")
            raise
    return node[1](children) if node else _like(tree, children)


def _is_container(x: Any) -> bool:
    cls = type(x)
    known = _CONTAINERS.get(cls)
    if known is None:  # asking an abstract class about every leaf would cost more than the leaf
        known = issubclass(cls, (*_PLAIN, Mapping)) or _registered(x) is not None
        if known or cls in SERVED:  # what is no array may yet be registered
            _CONTAINERS[cls] = known
    return known


def _registered(x: Any) -> _Node | None:
    """The children of a class that is registered with JAX, and what builds another from others."""
    if sys.modules.get("jax") is None:  # there is none, or it was kept out
        return None
    opened: _Node | None = verbs("jax", "pytree").opened(x)
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
        for key, child in items.items():  # a class may have its own idea of storing: Counter adds
            dict.__setitem__(mapping, key, child)
        return mapping
    if isinstance(tree, list):
        made = children if kind is list else copy(tree)
        list.__setitem__(made, slice(None), children)
        return made
    if hasattr(kind, "_make"):
        return kind._make(children)
    if hasattr(kind, "n_fields"):  # one of C's, as torch.max returns: not for `tuple` to make
        return kind(children)
    made = tuple.__new__(kind, children)
    if hasattr(made, "__dict__"):
        vars(made).update(vars(tree))
    return made
