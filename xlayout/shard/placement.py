"""Placement: a `Sharding` to and from those of JAX and DTensor, exact in both directions.

JAX lists for each array axis the mesh axes that cut it, major to minor. DTensor lists for each mesh
axis the array axis it cuts, and cuts in mesh order. For another order, or a fused weight, a split
factor says into how many parts the axis is cut first; this cut then goes through each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xlayout.algebra.shapes import axis_of
from xlayout.errors import ShardingError
from xlayout.registry import backend_module
from xlayout.shard.mesh import Mesh
from xlayout.shard.sharding import Sharding
from xlayout.shard.split import Split

__all__ = ["from_jax", "from_torch", "to_jax", "to_torch"]

Cut = tuple[int, int] | None
"""(array axis, split factor) of one mesh axis; None if it holds copies."""


def from_jax(sharding: Any) -> Sharding:
    """The `Sharding` of a NamedSharding."""
    shape, names, spec = backend_module("jax", "placement").describe(sharding)
    return Sharding(Mesh(shape, names), spec)


def to_jax(sharding: Sharding, mesh: Any) -> Any:
    """The NamedSharding of a `Sharding` on a jax.sharding.Mesh."""
    for axis, split in sharding.splits:
        if split.segments is not None or split.copies != 1 or split.pad or split.sizes or (
            split.rule != "even" and split.unit != 1
        ):  # fmt: skip
            raise ShardingError(
                f"axis {axis}: a NamedSharding cuts into equal parts, and {sharding} does not; "
                + _nearest_in_jax(sharding, axis, split)
            )
    if sharding.flat:
        raise ShardingError(
            f"{sharding} cuts the array flattened; the nearest that JAX can say is "
            f"P({', '.join(map(_entry, sharding.spec))}) of the flat array"
        )
    own = sharding.mesh
    return backend_module("jax", "placement").build(mesh, own.shape, own.names, sharding.spec)


def from_torch(mesh: Any, placements: Sequence[Any], ndim: int) -> Sharding:
    """The `Sharding` of a DeviceMesh and placements, for arrays of `ndim` axes."""
    shape, names, cuts = backend_module("torch", "placement").describe(mesh, placements)
    return of_cuts(Mesh(shape, names), cuts, ndim)


def to_torch(sharding: Sharding, mesh: Any) -> tuple[Any, ...]:
    """The placements of a `Sharding` on a DeviceMesh."""
    own = sharding.mesh
    cuts = cuts_of(sharding)
    made: tuple[Any, ...] = backend_module("torch", "placement").build(
        mesh, own.shape, own.names, cuts
    )
    return made


def of_cuts(mesh: Mesh, cuts: Sequence[Cut], ndim: int) -> Sharding:
    """The `Sharding` that cuts in mesh order describe.

    From right to left, the factor of a mesh axis counts the parts made by the axes on its right
    that come before it. What is left in the factor of the rightmost is the number of fused
    segments.
    """
    orders: list[list[int]] = [[] for _ in range(ndim)]
    segments = [1] * ndim
    for axis in reversed(range(len(cuts))):
        cut = cuts[axis]
        if cut is None:
            continue
        dim, factor = axis_of(cut[0], ndim, "placements: dim"), cut[1]
        order = orders[dim]
        if not order:
            segments[dim] = factor
        before = [math.prod(mesh.shape[a] for a in order[:k]) for k in range(len(order) + 1)]
        parts, odd = divmod(factor, segments[dim])
        if odd or parts not in before:
            may = ", ".join(str(n * segments[dim]) for n in dict.fromkeys(before))
            raise ShardingError(
                f"placements: split factor {factor} on mesh axis {mesh.names[axis]!r} for axis "
                f"{dim}: no order of the mesh axes has it; factors that one has: {may}"
            )
        order.insert(before.index(parts), axis)
    spec = [tuple(mesh.names[a] for a in order) for order in orders]
    fused = {d: Split(segments=k) for d, k in enumerate(segments) if k > 1}
    return Sharding(mesh, spec, splits=fused)


def cuts_of(sharding: Sharding) -> tuple[Cut, ...]:
    """The inverse of `of_cuts`."""
    mesh = sharding.mesh
    cuts: list[Cut] = [None] * len(mesh.shape)
    if sharding.flat:
        raise ShardingError(
            f"{sharding} cuts the array flattened; the nearest that DTensor can say is Shard(0) of "
            "the flat array"
        )
    for dim in range(len(sharding.spec)):
        order = sharding.axes(dim)
        segments = _equal_segments(sharding, dim, len(order))
        for k, axis in enumerate(order):
            late = math.prod(mesh.shape[a] for a in order[:k] if a > axis)
            cuts[axis] = (dim, late * segments)
    return tuple(cuts)


def _equal_segments(sharding: Sharding, dim: int, axes: int) -> int:
    split = sharding.split(dim)
    segments = split.segments or 1
    if isinstance(segments, tuple) and len(set(segments)) == 1 and axes == 1:
        segments = len(segments)
    plain = split.rule in ("ceil", "even") or (split.rule == "flat_ceil" and axes == 1)
    if (
        not plain or isinstance(segments, tuple) or split.unit != 1
        or split.sizes is not None or split.copies != 1 or split.pad
    ):  # fmt: skip
        near = f"Shard({dim})"
        if isinstance(segments, tuple):
            near += " of each segment as a tensor of its own"
        raise ShardingError(
            f"axis {dim}: DTensor cuts as torch.chunk does, in equal segments at most, and "
            f"{sharding} does not; the nearest that it can say is {near}"
        )
    return segments


def _nearest_in_jax(sharding: Sharding, axis: int, split: Split) -> str:
    entry = _entry(sharding.spec[axis])
    found = split.segments
    if isinstance(found, tuple) and len(set(found)) > 1:
        return f"the nearest that it can say is {entry} of each segment as an array of its own"
    if found is not None:
        k = found if isinstance(found, int) else len(found)
        return f"the nearest that it can say is P(None, {entry}) of the axis seen as ({k}, n / {k})"
    return f"the nearest that it can say is {entry} on an axis padded until it divides"


def _entry(names: tuple[str, ...]) -> str:
    return repr(names[0] if len(names) == 1 else names)
