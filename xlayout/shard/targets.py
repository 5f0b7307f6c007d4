"""Targets: shardings as callers give them, and as an array's framework expresses them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from xlayout.algebra.shapes import Shape
from xlayout.errors import ShardingError, about
from xlayout.registry import backend_module
from xlayout.shard.mesh import Mesh
from xlayout.shard.sharded_array import ShardedArray
from xlayout.shard.sharding import Sharding

__all__ = [
    "by_framework",
    "by_jax",
    "can_hold",
    "check_order",
    "chooses",
    "is_list_of_shardings",
    "on_manual_axes",
    "target_of",
    "targets_of",
]


def target_of(held: ShardedArray, to: Any, ndim: int, name: str) -> Sharding:
    """A sharding that was given as a `Sharding`, or in the form of the array's framework.

    Raises:
        TypeError: for a value that is not a sharding.
        ShardingError: for one on another mesh than the array's, or one that the framework cannot
            express; errors name the argument.
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
    if not held.same_ranks(mesh):
        raise ShardingError(
            f"{name}: {sharding} with devices as {held.describe_mesh(mesh)}; x lies on "
            f"{held.describe_mesh(held.mesh)}: give it on the mesh of x, and change meshes by "
            "jax.device_put"
        )
    if held.framework == "jax":
        check_order(held.x, held.mesh, sharding, name)
    with about(name, ShardingError):
        held.native(sharding)
    return sharding


def check_order(x: Any, mesh: Any, sharding: Sharding, name: str) -> None:
    """Raise ShardingError for a sharding that JAX would silently replace by another."""
    found = backend_module("jax", "collective").swapped(x, mesh, sharding.spec)
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
    with about(name, ValueError):
        return Sharding.from_torch(mesh, given, ndim)


def by_jax(given: Any, mesh: Any, name: str) -> tuple[Sharding, Any]:
    """A sharding that was given in JAX's form, and its NamedSharding; a spec is on `mesh`."""
    named = backend_module("jax", "collective").named(mesh, given, name)
    with about(name, ValueError):
        return Sharding.from_jax(named), named


def is_list_of_shardings(framework: str, to: Any) -> bool:
    """Whether several shardings were given; torch placements are a list or tuple too."""
    if not isinstance(to, (list, tuple)):
        return False
    return framework != "torch" or not backend_module("torch", "placement").is_placements(to)


def targets_of(held: ShardedArray, to: Any, axes: Sequence[int], name: str) -> tuple[Sharding, ...]:
    """The shardings of results with these numbers of axes, from one for all or a list.

    Raises:
        ShardingError: for another number of shardings than results.
    """
    given = list(to) if is_list_of_shardings(held.framework, to) else [to]
    if len(given) not in (1, len(axes)):
        raise ShardingError(
            f"{name}: a list of {len(given)} for {len(axes)} results; wanted one for all, or one "
            "for each"
        )
    several = given * len(axes) if len(given) == 1 else given
    return tuple(target_of(held, one, n, name) for one, n in zip(several, axes, strict=True))


def on_manual_axes(given: Any, mesh: Any, name: str) -> Sharding:
    """A sharding restricted to the manual axes of a shard_map."""
    manual: dict[str, int] = backend_module("jax", "collective").manual(mesh)
    sharding = given if isinstance(given, Sharding) else by_jax(given, mesh, name)[0]
    for axis in sharding.used:
        size = sharding.mesh.shape[sharding.mesh.axis(axis)]
        if manual.get(axis) != size:
            raise ShardingError(
                f"{name}: {sharding} is cut by {axis}={size}; this shard_map maps over "
                + " ".join(f"{axis}={n}" for axis, n in manual.items())
            )
    return replace(sharding, mesh=Mesh(tuple(manual.values()), tuple(manual)))


def can_hold(held: ShardedArray, sharding: Sharding, shape: Shape) -> bool:
    """Whether the framework of an array can express a sharding, for an array of this shape.

    What DTensor can express and misreads does not count, and is used only if a caller asks.
    """
    if held.is_part:
        return True
    try:
        held.native(sharding)
    except ShardingError:
        return False
    if held.framework == "jax" and backend_module("jax", "collective").swapped(
        held.x, held.mesh, sharding.spec
    ):
        return False
    if held.framework == "torch":
        return not any(_is_mixed_up(sharding, axis, n) for axis, n in enumerate(shape))
    return _divides(sharding, shape)


def _is_mixed_up(sharding: Sharding, axis: int, size: int) -> bool:
    """Whether `full_tensor` mixes up the parts of an axis that several mesh axes cut, or fails.

    That is so for segments; and for unequal parts in another order than the mesh's, depending on
    how many there are.
    """
    order = sharding.axes(axis)
    if len(order) < 2:
        return False
    turned = list(order) != sorted(order)
    return bool(sharding.split(axis).segments) or (turned and not _is_even(sharding, axis, size))


def _divides(sharding: Sharding, shape: Shape) -> bool:
    """Whether all parts are equal."""
    return all(_is_even(sharding, axis, n) for axis, n in enumerate(shape))


def _is_even(sharding: Sharding, axis: int, size: int) -> bool:
    """Whether all parts of one axis are equal."""
    return size % math.prod(sharding.counts(axis)) == 0


def chooses(held: ShardedArray) -> bool:
    """Whether the framework chooses result shardings; on explicit axes JAX asks the caller."""
    return held.framework == "torch" or not held.mesh.explicit_axes


def by_framework(
    run: Callable[..., tuple[Any, ...]],
    xs: Sequence[Any],
    held: ShardedArray,
    dst: Sequence[Sharding],
    shapes: Sequence[Shape],
) -> tuple[Any, ...]:
    """The results of `run`, of these shapes, by the framework's own ops, in these shardings.

    Raises:
        ShardingError: for parts of unequal size in JAX, which would silently choose others.
    """
    framework = backend_module(held.framework, "collective")
    for sharding, shape in zip(dst, shapes, strict=True):
        if held.framework == "jax" and not _divides(sharding, shape):
            raise ShardingError(
                f"out_sharding: {sharding} of {shape} in JAX, which holds equal parts only; pad "
                "the array until it divides (xlayout.pad)"
            )
    to = tuple(held.native(sharding) for sharding in dst)
    if not chooses(held):
        made = framework.automatic(run, to)(*xs)
        return tuple(map(framework.with_cotangent, made, to))
    return tuple(framework.redistributed(y, t) for y, t in zip(run(*xs), to, strict=True))
