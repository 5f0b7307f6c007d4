"""Exchange of a DTensor: its local shard, and where it stands on the mesh, in both directions.

Between frameworks a placement is said as JAX says it: per array dimension the mesh axes that cut
it, major to minor. DTensor says it per mesh axis; the order of the cuts hides in `_StridedShard`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from xlayout_torch.collective import whole
from xlayout_torch.exchange import Offer, adopt, offer

Spec = tuple[tuple[str, ...], ...]


def offer_global(x: Any, /) -> tuple[Offer, dict[str, Any]]:
    """The local shard of a DTensor, and the placement of the whole."""
    if not isinstance(x, DTensor):
        raise TypeError(f"expected a DTensor, got {type(x).__module__}.{type(x).__qualname__}")
    if x.requires_grad:
        raise TypeError("the DTensor requires grad, and JAX would not see its graph; x.detach()")
    mesh = x.device_mesh
    placement = {
        "shape": tuple(x.shape),
        "spec": spec_of(axis_names(mesh), mesh.shape, x.placements, x.ndim),
        "axes": axis_names(mesh),
        "ranks": mesh.mesh.tolist(),
    }
    return offer(x.to_local()), placement


def adopt_global(local: Any, placement: dict[str, Any], mesh: DeviceMesh, /) -> DTensor:
    """A DTensor on `mesh` around the memory of `local`."""
    if placement["axes"] != axis_names(mesh) or placement["ranks"] != mesh.mesh.tolist():
        raise ValueError(
            f"device_mesh: axes {axis_names(mesh)} over ranks {mesh.mesh.tolist()}; the array is "
            f"on axes {placement['axes']} over processes {placement['ranks']}; pass a mesh like it"
        )
    placements = placements_of(placement["spec"], axis_names(mesh), mesh.shape)
    return whole(adopt(local, copy=False), mesh, placements, placement["shape"])


def axis_names(mesh: DeviceMesh) -> tuple[str, ...]:
    """The names of the mesh axes; `d0`, `d1`, … where it has none."""
    return tuple(mesh.mesh_dim_names or (f"d{i}" for i in range(mesh.ndim)))


def spec_of(
    names: Sequence[str], sizes: Sequence[int], placements: Sequence[Placement], ndim: int
) -> Spec:
    """Per array dimension the mesh axes that cut it, major to minor.

    Axes cut in mesh order, but for a `_StridedShard`: it comes after as many of the axes to its
    right as its split factor counts parts.
    """
    orders: list[list[int]] = [[] for _ in range(ndim)]
    for axis in reversed(range(len(names))):
        placement: Any = placements[axis]
        if isinstance(placement, Replicate):
            continue
        if isinstance(placement, Partial):
            raise ValueError(
                f"placements: {placement} on mesh axis {names[axis]!r} holds sums that are not "
                "done; JAX has no such array; pass x.redistribute(...) of it"
            )
        if not isinstance(placement, Shard | _StridedShard):
            raise ValueError(
                f"placements: {placement} on mesh axis {names[axis]!r}; a NamedSharding knows "
                "Shard, _StridedShard and Replicate"
            )
        order = orders[placement.dim % ndim]
        factor = int(placement.split_factor) if isinstance(placement, _StridedShard) else 1
        before = [prod(sizes[a] for a in order[:i]) for i in range(len(order) + 1)]
        if factor not in before:
            raise ValueError(
                f"placements: {placement} on mesh axis {names[axis]!r}; no order of the mesh axes "
                f"to its right has that split factor (they give {before}), so JAX cannot say it; "
                "redistribute it to Shard first"
            )
        order.insert(before.index(factor), axis)
    return tuple(tuple(names[a] for a in order) for order in orders)


def placements_of(spec: Spec, names: Sequence[str], sizes: Sequence[int]) -> list[Placement]:
    """The inverse of `spec_of`."""
    placements: list[Placement] = [Replicate() for _ in names]
    for dim, axes in enumerate(spec):
        order = [names.index(name) for name in axes]
        for i, axis in enumerate(order):
            factor = prod(sizes[a] for a in order[:i] if a > axis)
            late = any(a > axis for a in order[:i])
            placements[axis] = _StridedShard(dim, split_factor=factor) if late else Shard(dim)
    return placements
