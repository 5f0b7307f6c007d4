"""Arrays: what is asked of a sharded array, whichever framework holds it."""

from __future__ import annotations

from typing import Any

from xlayout.errors import ShardingError
from xlayout.registry import backend_of
from xlayout.shard.placement import verbs
from xlayout.shard.sharding import Sharding

__all__ = ["can_hold", "framework_of", "lay", "native", "sharding_of", "target_of"]


def framework_of(x: Any) -> str:
    """The framework, torch or jax, of an array that many devices may hold.

    Raises:
        TypeError: for any other array.
    """
    name = backend_of(x).name
    if name not in ("torch", "jax") or not verbs(name, "collective").is_sharded(x):
        raise TypeError(
            f"x: a {type(x).__name__} is on one device; wanted a DTensor or a jax.Array"
        )
    return name


def sharding_of(x: Any) -> Sharding:
    """How an array lies.

    Raises:
        TypeError: for an array that is not sharded, or does not know its sharding.
    """
    if framework_of(x) == "torch":
        return Sharding.from_torch(x.device_mesh, x.placements, x.ndim)
    return Sharding.from_jax(verbs("jax", "collective").sharding_of(x))


def target_of(x: Any, to: Any, ndim: int) -> Sharding:
    """A sharding that was given as a `Sharding`, or as the framework of `x` says it."""
    if isinstance(to, Sharding):
        return to
    if framework_of(x) == "torch":
        return Sharding.from_torch(x.device_mesh, to, ndim)
    return Sharding.from_jax(to)


def native(x: Any, sharding: Sharding) -> Any:
    """A sharding on the mesh of `x`, as its framework says it: placements or a NamedSharding."""
    if framework_of(x) == "torch":
        return sharding.to_torch(x.device_mesh)
    return sharding.to_jax(verbs("jax", "collective").sharding_of(x).mesh)


def can_hold(x: Any, sharding: Sharding) -> bool:
    """Whether the framework of `x` has a word for a sharding."""
    try:
        native(x, sharding)
    except ShardingError:
        return False
    return True


def lay(x: Any, sharding: Sharding) -> Any:
    """`x` as it is to lie, by the framework's own means."""
    return verbs(framework_of(x), "collective").lay(x, native(x, sharding))
