"""Exchange of a DTensor: its local shard, in both directions, and the ranks that hold shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from xlayout_torch.collective import whole
from xlayout_torch.exchange import Offer, adopt, offer
from xlayout_torch.placement import axis_names


def offer_global(x: Any, /) -> Offer:
    """The local shard of a DTensor."""
    if not isinstance(x, DTensor):
        raise TypeError(f"expected a DTensor, got {type(x).__module__}.{type(x).__qualname__}")
    if x.requires_grad:
        raise TypeError("requires grad, and JAX would not see its graph; pass dt.detach()")
    return offer(x.to_local())


def adopt_global(
    local: Any, mesh: DeviceMesh, placements: Sequence[Any], shape: Sequence[int], /
) -> DTensor:
    """The DTensor of which `local` is this rank's shard, in the order of axes that this has."""
    part = adopt(local, copy=False)
    order: Sequence[int] = range(part.ndim)
    if not part.is_contiguous():
        order = sorted(order, key=part.stride, reverse=True)
    return whole(part, mesh, placements, shape, order)


def processes(mesh: DeviceMesh, /) -> list[Any]:
    """The ranks of a mesh, nested as its axes are."""
    ranks: list[Any] = mesh.mesh.tolist()
    return ranks


def refuse_another(mesh: DeviceMesh, names: Sequence[str], there: Sequence[Any], /) -> None:
    """Refuse a mesh that does not have these axes and these ranks, in their order."""
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"device_mesh: {type(mesh).__qualname__}; wanted a DeviceMesh")
    if (axis_names(mesh), processes(mesh)) != (tuple(names), list(there)):
        raise ValueError(
            f"device_mesh: axes {axis_names(mesh)} over ranks {processes(mesh)}; the array is "
            f"on axes {tuple(names)} over processes {there}; pass a mesh like it"
        )
