"""Arrays: the shardings of the arrays of a call, their own or given by the caller."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

from xlayout.algebra.shapes import a_type
from xlayout.errors import ShardingError
from xlayout.registry import backend_module, backend_of
from xlayout.shard.sharded_array import ShardedArray
from xlayout.shard.sharding import Sharding
from xlayout.shard.split import per_segment
from xlayout.shard.targets import (
    by_jax,
    check_order,
    is_list_of_shardings,
    on_manual_axes,
    target_of,
)

__all__ = [
    "are_batched",
    "framework_of",
    "on_one_device",
    "sharded_arrays",
]


def framework_of(x: Any) -> str:
    """The framework, torch or jax, of an array that many devices may hold.

    Raises:
        TypeError: for any other array.
    """
    name = backend_of(x).name
    if name not in ("torch", "jax") or not backend_module(name, "collective").is_sharded(x):
        raise TypeError(f"x: {a_type(x)} is on one device; wanted a DTensor or a jax.Array")
    return name


def on_one_device(x: Any) -> bool:
    """Whether an array is on one device, and not on a mesh."""
    name = backend_of(x).name
    return name not in ("torch", "jax") or backend_module(name, "collective").on_one_device(x)


def are_batched(arrays: Sequence[Any]) -> bool:
    """Whether `jax.vmap` has batched any of these, as far as JAX shows it."""
    return any(
        framework_of(x) == "jax" and backend_module("jax", "collective").view(x)[0] == "batched"
        for x in arrays
    )


def sharded_arrays(arrays: Sequence[Any], in_sharding: Any = None) -> tuple[ShardedArray, ...]:
    """Arrays with their shardings; `in_sharding`, one or a list, is for tracers that carry none.

    Raises:
        TypeError: for an array that is not sharded, or whose sharding is neither known nor given.
        ShardingError: if `in_sharding` contradicts what is known; for arrays on different meshes.
    """
    several = bool(arrays) and is_list_of_shardings(backend_of(arrays[0]).name, in_sharding)
    given = in_sharding if several else [in_sharding] * len(arrays)
    if len(given) != len(arrays):
        raise ShardingError(f"in_sharding: {len(given)} of them for {len(arrays)} arrays")
    found = tuple(map(_sharded_array, _on_one_mesh(arrays), given))
    for number, other in enumerate(found):
        if not found[0].same_ranks(other.mesh):
            raise ShardingError(
                f"arrays: 0 lies on {found[0].describe_mesh(found[0].mesh)}, {number} on "
                f"{other.describe_mesh(other.mesh)}; wanted one mesh, with its devices in one "
                "order"
            )
    return found


def _on_one_mesh(arrays: Sequence[Any]) -> Sequence[Any]:
    """The arrays, with those on one device put on the others' mesh if the framework allows it."""
    spread = [backend_of(x).is_sharded(x) for x in arrays]
    if not (True in spread and False in spread):
        return arrays
    many = spread.index(True)
    framework = backend_module(backend_of(arrays[many]).name, "collective")
    several = [
        framework.replicated_beside(x, arrays[many]) if where is False else x
        for x, where in zip(arrays, spread, strict=True)
    ]
    one = next((k for k, x in enumerate(several) if x is None), None)
    if one is not None:
        raise TypeError(
            f"arrays: {many} is on many devices, {one} on one; wanted all on one mesh: put that "
            "one there first, replicated or in parts"
        )
    return several


def _sharded_array(x: Any, given: Any) -> ShardedArray:
    if framework_of(x) == "torch":
        known = Sharding.from_torch(x.device_mesh, x.placements, x.ndim)
        shape = tuple(map(index, x.shape))  # may be dynamic under a compiler
        found = ShardedArray(x, "torch", shape, known, x.device_mesh)
    else:
        jax = backend_module("jax", "collective")
        kind, mesh = jax.view(x)
        if kind == "part":
            return _part(x, mesh, given)
        if kind == "batched":
            raise TypeError(
                f"x: {x.aval} inside jax.vmap, which no exchange sees through to where the batch "
                "lies; give the array a batch axis that the op leaves alone, call it outside vmap, "
                "or leave it to JAX's own ops with comm='native'"
            )
        if kind == "automatic":
            return _on_automatic_axes(x, mesh, given)
        named = jax.sharding_of(x)
        found = ShardedArray(x, "jax", tuple(x.shape), Sharding.from_jax(named), named.mesh)
        check_order(x, named.mesh, found.sharding, "x")
    if given is not None:
        said = target_of(found, given, x.ndim, "in_sharding")
        if said != found.sharding:
            raise ShardingError(
                f"in_sharding: {said}, but x lies as {found.sharding}; leave it out, or reshard x "
                "first"
            )
    return found


def _on_automatic_axes(x: Any, mesh: Any, given: Any) -> ShardedArray:
    """A tracer on automatic axes, constrained to the sharding that was given."""
    jax = backend_module("jax", "collective")
    if given is None:
        raise TypeError(
            f"x: {x.aval} is traced on {mesh}, where a tracer does not know its sharding; say it "
            "with in_sharding=, give the mesh explicit axes, or call it outside jit"
        )
    given = given.to_jax(mesh) if isinstance(given, Sharding) else given
    sharding, named = by_jax(given, mesh, "in_sharding")
    check_order(x, named.mesh, sharding, "in_sharding")
    return ShardedArray(jax.constrained(x, named), "jax", tuple(x.shape), sharding, named.mesh)


def _part(x: Any, mesh: Any, given: Any) -> ShardedArray:
    """A tracer inside shard_map: a part of an array with the given sharding on the manual axes."""
    if given is None:
        raise TypeError(
            f"x: {x.aval} is one device's part inside shard_map; say with in_sharding= how the "
            "whole lies, as in_specs says it"
        )
    sharding = on_manual_axes(given, mesh, "in_sharding")
    shape = tuple(_whole_axis(sharding, axis, n) for axis, n in enumerate(x.shape))
    return ShardedArray(x, "jax", shape, sharding, mesh, is_part=True)


def _whole_axis(sharding: Sharding, axis: int, n: int) -> int:
    """The size of an axis of which every rank holds `n`."""
    split = sharding.split(axis)
    if isinstance(split.segments, tuple) and isinstance(split.copies, tuple):
        return sum(split.segments)
    (copies,) = per_segment(split.copies, 1)
    return n * math.prod(sharding.counts(axis)) // copies
