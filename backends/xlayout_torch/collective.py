"""Collective: what torch does of an exchange between ranks, and how gradients go back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement

Step = Callable[..., tuple[Any, ...]]


def is_sharded(x: Any, /) -> bool:
    return isinstance(x, DTensor)


def rank_of(mesh: DeviceMesh, /) -> int:
    """This process's position in the mesh, row-major."""
    at = mesh.get_coordinate()
    if at is None:
        raise ValueError(f"rank {dist.get_rank()} is not in {mesh}; call it on its ranks only")
    rank = 0
    for n, k in zip(mesh.shape, at, strict=True):
        rank = rank * n + k
    return rank


def local(x: Any, /) -> torch.Tensor:
    """This rank's part of a DTensor; gradients find their way back."""
    part: torch.Tensor = x.to_local()
    return part


def whole(part: Any, mesh: DeviceMesh, placements: Sequence[Placement], shape: Any, /) -> DTensor:
    """The DTensor of which `part` is this rank's."""
    return DTensor.from_local(
        part,
        mesh,
        placements,
        run_check=False,
        shape=torch.Size(shape),
        stride=tuple(prod(shape[d + 1 :]) for d in range(len(shape))),
    )


def exchange(
    buffer: Any, sends: Sequence[int], receives: Sequence[int], mesh: DeviceMesh | None, /
) -> torch.Tensor:
    """Elements to and from every rank of the mesh (None: of the world), in one all-to-all.

    They travel as bytes: no dtype is strange to a transport, and none is widened.
    """
    size = buffer.element_size()
    order = _order(mesh)
    if order is not None:
        parts = torch.split(buffer, list(sends))
        buffer = torch.cat([parts[k] for k in order])
        sends, receives = [sends[k] for k in order], [receives[k] for k in order]
    got = funcol.all_to_all_single(
        buffer.contiguous().view(torch.uint8),
        [n * size for n in receives],
        [n * size for n in sends],
        _group(mesh),
    )
    got = funcol.wait_tensor(got).view(buffer.dtype)  # type: ignore[no-untyped-call]
    if order is not None:
        parts = torch.split(got, list(receives))
        got = torch.cat([parts[order.index(k)] for k in range(len(order))])
    return got


def _order(mesh: DeviceMesh | None) -> list[int] | None:
    """Positions in the mesh by rank in the group, where the two differ: groups sort their ranks."""
    ranks = [] if mesh is None else mesh.mesh.flatten().tolist()
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    return None if order == list(range(len(ranks))) else order


def _group(mesh: DeviceMesh | None) -> Any:
    if mesh is None or mesh.size() == dist.get_world_size():
        return dist.group.WORLD
    return mesh.get_group() if mesh.ndim == 1 else mesh._flatten().get_group()


def linear(forward: Step, backward: Step, arrays: Sequence[Any], /) -> tuple[Any, ...]:
    """`forward(*arrays)`, with `backward` as its transpose; `backward` has `forward` as its own."""
    made: tuple[Any, ...] = _Linear.apply(forward, backward, *arrays)  # type: ignore[no-untyped-call]
    return made


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forward: Step, backward: Step, *arrays: Any) -> tuple[Any, ...]:
        ctx.forward, ctx.backward = forward, backward
        return forward(*(x.detach() for x in arrays))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        return (None, None, *linear(ctx.backward, ctx.forward, gradients))


def gather(
    x: Any, _source: Any, placements: Sequence[Placement], dtype: Any, reduce_dtype: Any, /
) -> DTensor:
    """Cast, then gather; backward: reduce-scatter in `reduce_dtype`, then the dtype of `x`."""
    made: DTensor = x.redistribute(
        x.device_mesh, placements, forward_dtype=dtype, backward_dtype=reduce_dtype
    )
    return made


def lay(x: Any, placements: Sequence[Placement], /) -> DTensor:
    """`x` under other placements, by DTensor's own collectives."""
    made: DTensor = x.redistribute(x.device_mesh, placements)
    return made


def dtype_named(name: Any, /) -> torch.dtype:
    """A dtype, or the one of that name."""
    found = getattr(torch, name, None) if isinstance(name, str) else name
    if not isinstance(found, torch.dtype):
        raise TypeError(f"dtype: {name!r}; wanted a torch.dtype or its name")
    return found


def cast(x: Any, dtype: Any, /) -> Any:
    return x.to(dtype)
