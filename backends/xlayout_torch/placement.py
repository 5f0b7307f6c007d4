"""Placement: what DTensor says of each mesh axis as plain numbers, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

Cut = tuple[int, int] | None
"""(tensor dimension, split factor) of one mesh axis; None where it holds copies."""


def describe(
    mesh: Any, placements: Sequence[Any], /
) -> tuple[tuple[int, ...], tuple[str, ...], tuple[Cut, ...]]:
    """(mesh shape, axis names, cuts); ranks count along `mesh.mesh`, row-major."""
    names = axis_names(mesh)
    if isinstance(placements, Placement):
        raise TypeError(f"placements: {placements}; wanted a sequence, one for each of {names}")
    if len(placements) != mesh.ndim:
        raise ValueError(
            f"placements: {len(placements)} for a mesh of {mesh.ndim} axes {names}; one each"
        )
    cuts = tuple(_cut(p, name) for p, name in zip(placements, names, strict=True))
    return tuple(mesh.shape), names, cuts


def is_placements(given: Sequence[Any], /) -> bool:
    """Whether these are placements, rather than things of which each is a sharding."""
    return bool(given) and all(isinstance(one, Placement) for one in given)


def build(
    mesh: Any, shape: Sequence[int], names: Sequence[str], cuts: Sequence[Cut], /
) -> tuple[Placement, ...]:
    """The placements of some cuts on a DeviceMesh of that shape and those names."""
    found = axis_names(mesh)
    if (tuple(mesh.shape), found) != (tuple(shape), tuple(names)):
        raise ValueError(
            f"mesh: {dict(zip(found, mesh.shape, strict=True))}; the sharding is on "
            f"{dict(zip(names, shape, strict=True))}"
        )
    return tuple(_placement(cut) for cut in cuts)


def axis_names(mesh: Any, /) -> tuple[str, ...]:
    """The names of the mesh axes; `d0`, `d1`, … where it has none."""
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"mesh: {type(mesh).__qualname__}; wanted a DeviceMesh")
    return tuple(mesh.mesh_dim_names or (f"d{k}" for k in range(mesh.ndim)))


def _placement(cut: Cut) -> Placement:
    if cut is None:
        return Replicate()
    dim, factor = cut
    return Shard(dim) if factor == 1 else _StridedShard(dim, split_factor=factor)


def _cut(placement: Any, name: str) -> Cut:
    if isinstance(placement, Replicate):
        return None
    if isinstance(placement, _StridedShard):
        return int(placement.dim), int(placement.split_factor)
    if isinstance(placement, Shard):
        return int(placement.dim), 1
    more = "; its sums are not done, redistribute it" if isinstance(placement, Partial) else ""
    raise ValueError(
        f"placements: {placement} on mesh axis {name!r}{more}; wanted Shard, _StridedShard or "
        "Replicate"
    )
