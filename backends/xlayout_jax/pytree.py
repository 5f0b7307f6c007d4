"""One level of a pytree: what a class that is registered with JAX holds, and how it is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

Opened = tuple[list[tuple[str, Any]], Callable[[Sequence[Any]], Any]]


def opened(x: Any, /) -> Opened | None:
    """Where each child of `x` sits, with the child, and what builds another; None for a leaf."""
    if jax.tree_util.all_leaves([x]):  # on a leaf that Dynamo watches, what follows would fail
        return None
    tree: Any
    found, tree = jax.tree_util.tree_flatten_with_path(x, is_leaf=lambda child: child is not x)
    return [(jax.tree_util.keystr(path), child) for path, child in found], tree.unflatten
