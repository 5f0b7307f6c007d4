"""Targets: shardings as callers give them, and as the framework of an array expresses them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from xlayout.algebra.shapes import Shape
from xlayout.errors import ShardingError
from xlayout.registry import verbs
from xlayout.shard.laid import Laid
from xlayout.shard.mesh import Mesh
from xlayout.shard.sharding import Sharding

__all__ = [
    "by_framework",
    "by_jax",
    "can_hold",
    "check_order",
    "chooses",
    "listed",
    "mesh_said",
    "on_manual_axes",
    "same_ranks",
    "spelled",
    "target_of",
    "targets_of",
]


def target_of(held: Laid, to: Any, ndim: int, name: str) -> Sharding:
    """A sharding that was given as a `Sharding`, or as the framework of an array says it.

    Raises:
        TypeError: for what says no sharding.
        ShardingError: for one on another mesh than the array's; all name the argument.
    """
    if held.is_part:
        return on_manual_axes(to, held.mesh, name)
    own, mesh = held.sharding.mesh, held.mesh
    if isinstance(to, Sharding):
        sharding = to
    elif held.framework == "torch":
        sharding = _by_torch(to, mesh, ndim, name)
    else:
        sharding, named = by_jax(to, mesh, name)
        mesh = named.mesh
    if sharding.mesh != own:
        raise ShardingError(f"{name}: {sharding}; x lies on {own}: give it on the mesh of x")
    if not same_ranks(held, mesh):
        raise ShardingError(
            f"{name}: {sharding} with devices as {mesh_said(held, mesh)}; x lies on "
            f"{mesh_said(held, held.mesh)}: give it on the mesh of x, and change meshes by "
            "jax.device_put"
        )
    if held.framework == "jax":
        check_order(held.x, held.mesh, sharding, name)
    return sharding


def check_order(x: Any, mesh: Any, sharding: Sharding, name: str) -> None:
    """Raise ShardingError where JAX would silently lay an array otherwise."""
    found = verbs("jax", "collective").swapped(x, mesh, sharding.spec)
    if found is not None:
        auto, explicit = found
        raise ShardingError(
            f"{name}: {sharding} is cut by {auto!r}, an automatic axis, before {explicit!r}, an "
            f"explicit one; inside jit JAX cuts by explicit axes first, and would move the data: "
            f"put {explicit!r} before {auto!r}, make both axes of one kind, or call it outside jit"
        )


def _by_torch(given: Any, mesh: Any, ndim: int, name: str) -> Sharding:
    if not isinstance(given, (tuple, list)):
        raise TypeError(
            f"{name}: {given!r}; wanted a Sharding, or a list of placements, one for each mesh axis"
        )
    try:
        return Sharding.from_torch(mesh, given, ndim)
    except ValueError as error:
        raise type(error)(f"{name}: {error}") from error


def by_jax(given: Any, mesh: Any, name: str) -> tuple[Sharding, Any]:
    """A sharding that was given as JAX says it, and its NamedSharding; a spec is on `mesh`."""
    named = verbs("jax", "collective").named(mesh, given, name)
    try:
        return Sharding.from_jax(named), named
    except ValueError as error:
        raise type(error)(f"{name}: {error}") from error


def listed(framework: str, to: Any) -> bool:
    """Whether several shardings were given; placements may be a list or tuple too."""
    if not isinstance(to, (list, tuple)):
        return False
    return framework != "torch" or not verbs("torch", "placement").is_placements(to)


def targets_of(held: Laid, to: Any, axes: Sequence[int], name: str) -> tuple[Sharding, ...]:
    """How results are to lie that have so many axes each: one sharding for all, or a list of them.

    Raises:
        ShardingError: for another number of shardings than results.
    """
    given = list(to) if listed(held.framework, to) else [to]
    if len(given) not in (1, len(axes)):
        raise ShardingError(
            f"{name}: a list of {len(given)} for {len(axes)} results; wanted one for all, or one "
            "for each"
        )
    several = given * len(axes) if len(given) == 1 else given
    return tuple(target_of(held, one, n, name) for one, n in zip(several, axes, strict=True))


def on_manual_axes(given: Any, mesh: Any, name: str) -> Sharding:
    """A sharding restricted to the axes over which a shard_map maps."""
    manual: dict[str, int] = verbs("jax", "collective").manual(mesh)
    sharding = given if isinstance(given, Sharding) else by_jax(given, mesh, name)[0]
    for axis in sharding.used:
        size = sharding.mesh.shape[sharding.mesh.axis(axis)]
        if manual.get(axis) != size:
            raise ShardingError(
                f"{name}: {sharding} is cut by {axis}={size}; this shard_map maps over "
                + " ".join(f"{axis}={n}" for axis, n in manual.items())
            )
    return replace(sharding, mesh=Mesh(tuple(manual.values()), tuple(manual)))


def spelled(held: Laid, sharding: Sharding) -> Any:
    """A sharding on the mesh of an array, as its framework says it: placements or NamedSharding."""
    if held.framework == "torch":
        return sharding.to_torch(held.mesh)
    return sharding.to_jax(held.mesh)


def can_hold(held: Laid, sharding: Sharding, shape: Shape) -> bool:
    """Whether the framework of an array can express a sharding, for an array of this shape.

    DTensor expresses segments that several mesh axes cut, and reads them wrongly: `full_tensor`
    gives the parts in another order. So they do not count, and arise only where a caller asks.
    """
    if held.is_part:
        return True
    try:
        spelled(held, sharding)
    except ShardingError:
        return False
    if held.framework == "jax" and verbs("jax", "collective").swapped(
        held.x, held.mesh, sharding.spec
    ):
        return False
    if held.framework == "torch":
        return not any(s.segments and len(sharding.axes(k)) > 1 for k, s in sharding.splits)
    return all(n % math.prod(sharding.counts(axis)) == 0 for axis, n in enumerate(shape))


def chooses(held: Laid) -> bool:
    """Whether the framework finds a place for any result; on explicit axes JAX asks the caller."""
    return held.framework == "torch" or not held.mesh.explicit_axes


def by_framework(
    run: Callable[..., tuple[Any, ...]], xs: Sequence[Any], held: Laid, dst: Sequence[Sharding]
) -> tuple[Any, ...]:
    """What `run` makes, by the framework's own means, each result as it is to lie."""
    own = verbs(held.framework, "collective")
    to = tuple(spelled(held, sharding) for sharding in dst)
    if not chooses(held):
        made: tuple[Any, ...] = own.automatic(run, to)(*xs)
        return made
    return tuple(own.lay(y, t) for y, t in zip(run(*xs), to, strict=True))


def same_ranks(held: Laid, mesh: Any) -> bool:
    """Whether a rank of a mesh is the same device on the mesh of an array."""
    same: bool = verbs(held.framework, "collective").same_ranks(held.mesh, mesh)
    return same


def mesh_said(held: Laid, mesh: Any) -> str:
    """A mesh of the framework of an array, in words."""
    said: str = verbs(held.framework, "collective").mesh_said(mesh)
    return said
