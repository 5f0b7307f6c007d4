"""Transport: elements between the ranks of a mesh, over whatever joins them.

Over gloo, every two ranks that have something to send have a message of their own (`pairs`). Any
other transport (NCCL), and any graph that is being compiled, takes functional collectives, which a
compiler can overlap and merge; so do selective checkpoints, which can keep or repeat them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives  # what the collectives make of fake tensors
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import (
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
)
from torch.utils.checkpoint import _CachedTorchDispatchMode, _CachingTorchDispatchMode

from xlayout_torch.memory import PLAIN, as_bytes
from xlayout_torch.pairs import swap

_ops = torch.ops._c10d_functional
_c10d: Any = torch.distributed.distributed_c10d
_CARRIED = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32)
"""Dtypes that are gathered as they are; others as bytes."""
_KEEPERS = (_CachingTorchDispatchMode, _CachedTorchDispatchMode)
"""The modes of selective checkpoints, which answer a call again with what it returned: they know
what a collective returns, but not what a message wrote into a buffer."""


def exchange(
    buffer: torch.Tensor, sends: Sequence[int], receives: Sequence[int], mesh: DeviceMesh | None, /
) -> torch.Tensor:
    """Elements to and from every rank of the mesh (None: of the world), in the mesh's order.

    They travel as bytes, so every transport takes every dtype, and none is widened.
    """
    ranks, group = _everyone(mesh), _group_around(mesh)
    bits, size = as_bytes(buffer), buffer.element_size()
    out, into = [n * size for n in sends], [n * size for n in receives]
    if _in_pairs(buffer, group):
        got = bits.new_empty(sum(into))
        swap(_cut(bits, out, ranks), _cut(got, into, ranks), group)
        return got.view(buffer.dtype)
    if mesh is not None and len(ranks) < group.size():
        group = _group_of(group, tuple(sorted(ranks)))
    order = _sorted(ranks)
    outs, ins = [out[k] for k in order], [into[k] for k in order]
    got = _ops.all_to_all_single(_reordered(bits, out, order), ins, outs, group.group_name)
    return _reordered(_ops.wait_tensor(got), ins, _inverse(order)).view(buffer.dtype)


def gather(part: torch.Tensor, mesh: DeviceMesh, axes: Sequence[int], /) -> torch.Tensor:
    """The equal, flat parts of all ranks along some mesh axes, one after the other."""
    group = _group_around(mesh)
    if _in_pairs(part, group):
        ranks = _line(mesh, tuple(axes))
        rows = part.new_empty(len(ranks), part.numel())
        _swap_rows([as_bytes(part)] * len(ranks), rows, ranks, group)
        return rows.flatten()
    made = part if part.dtype in _CARRIED else as_bytes(part)
    for axis in reversed(axes):
        order, group = _sorted(_line(mesh, (axis,))), mesh.get_group(axis)
        gathered = _ops.all_gather_into_tensor(made, len(order), group.group_name)
        sizes = [made.numel()] * len(order)
        made = _reordered(_ops.wait_tensor(gathered), sizes, _inverse(order))
    return made if made.dtype == part.dtype else made.view(part.dtype)


def total(x: torch.Tensor, group: str, /) -> torch.Tensor:
    """The sum over the ranks of a group, given by its name; Dynamo follows it."""
    made = _ops.all_reduce(x.contiguous(), "sum", group)
    summed: torch.Tensor = _ops.wait_tensor(made)
    return summed


def stacked(x: torch.Tensor, group: str, size: int, /) -> torch.Tensor:
    """The tensors of all ranks of a group, along a new first axis; Dynamo follows it."""
    made = _ops.all_gather_into_tensor(x.contiguous().flatten(), size, group)
    gathered: torch.Tensor = _ops.wait_tensor(made).view(size, *x.shape)
    return gathered


def reduce_scatter(rows: torch.Tensor, mesh: DeviceMesh, axes: Sequence[int], /) -> torch.Tensor:
    """The sum over the ranks along some mesh axes of this rank's stretch of a flat tensor.

    Over gloo every rank adds up in the order of the ranks.
    """
    group = _group_around(mesh)
    if _in_pairs(rows, group):
        ranks = _line(mesh, tuple(axes))
        got = rows.new_empty(len(ranks), rows.numel() // len(ranks))
        _swap_rows(as_bytes(rows).tensor_split(len(ranks)), got, ranks, group)
        summed = got[0].clone()  # not a view that would keep all of them alive
        for row in got[1:]:
            summed += row
        return summed
    for axis in axes:
        order, group = _sorted(_line(mesh, (axis,))), mesh.get_group(axis)
        rows = _reordered(rows, [rows.numel() // len(order)] * len(order), order)
        rows = _ops.reduce_scatter_tensor(rows, "sum", len(order), group.group_name)
        rows = _ops.wait_tensor(rows)
    return rows


# -- who is there --------------------------------------------------------------------------------


def _everyone(mesh: DeviceMesh | None) -> tuple[int, ...]:
    """All ranks of a mesh, row-major."""
    if mesh is None:
        return tuple(range(dist.get_world_size()))
    return _line(mesh, tuple(range(mesh.ndim)))


def _group_around(mesh: DeviceMesh | None) -> Any:
    """An existing group that has all ranks of a mesh; to make one, other ranks would be needed."""
    return mesh.get_group() if mesh is not None and mesh.ndim == 1 else dist.group.WORLD


def _group_of(world: Any, ranks: tuple[int, ...]) -> Any:
    """A group of these ranks alone; others are not needed to make it.

    It is named by its ranks. `dist.new_group` would name it by the number of groups that a rank is
    in, too, and ranks that are in more of them than others would never find each other. Torch keeps
    it, and forgets it when the world is destroyed.
    """
    name = f"xlayout {ranks}"
    for group, other in _c10d._world.pg_names.items():
        if other == name:
            return group
    kind, store = _c10d._world.pg_map[world]
    made, _ = _c10d._new_process_group_helper(
        len(ranks),
        ranks.index(dist.get_rank()),
        list(ranks),
        dist.Backend(kind),
        store,
        name,
        timeout=_c10d._get_default_timeout(kind),
    )
    _c10d._world.pg_group_ranks[made] = {rank: place for place, rank in enumerate(ranks)}
    return made


def _line(mesh: DeviceMesh, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks that differ from this one along those axes only, row-major."""
    return _line_of(dist.get_rank(), mesh, axes)


@lru_cache(256)
def _line_of(_rank: int, mesh: DeviceMesh, axes: tuple[int, ...]) -> tuple[int, ...]:
    at = mesh.get_coordinate()
    assert at is not None
    with _disable_current_modes():  # plain numbers, also while a compiler records
        line = mesh.mesh[tuple(slice(None) if k in axes else at[k] for k in range(mesh.ndim))]
        return tuple(line.flatten().tolist())


def _sorted(ranks: Sequence[int]) -> list[int]:
    """Places of ranks in the order in which their group has them: groups sort their ranks."""
    return sorted(range(len(ranks)), key=ranks.__getitem__)


def _inverse(order: list[int]) -> list[int]:
    return [order.index(k) for k in range(len(order))]


def _reordered(flat: torch.Tensor, sizes: list[int], order: list[int]) -> torch.Tensor:
    """Stretches of a flat tensor, which are of these sizes, in another order."""
    if order == list(range(len(order))):
        return flat
    parts = torch.split(flat, sizes)
    return torch.cat([parts[k] for k in order])


def _swap_rows(
    bits: Sequence[torch.Tensor], rows: torch.Tensor, ranks: Sequence[int], group: Any
) -> None:
    """Bytes to each of some ranks, and a row from each; this rank's own are copied."""
    seen, own = rows.view(torch.uint8), ranks.index(dist.get_rank())
    seen[own].copy_(bits[own])
    others = [k for k in range(len(ranks)) if k != own]
    swap({ranks[k]: bits[k] for k in others}, {ranks[k]: seen[k] for k in others}, group)


def _in_pairs(x: torch.Tensor, group: Any) -> bool:
    """Whether elements go by `pairs`, not by a collective."""
    if type(x) not in PLAIN or x.device.type != "cpu":  # not while a compiler records
        return False
    if any(isinstance(mode, _KEEPERS) for mode in _get_current_dispatch_mode_stack()):
        return False
    return bool(group._get_backend(x.device).name() == "gloo")


def _cut(bits: torch.Tensor, sizes: list[int], ranks: Sequence[int]) -> dict[int, torch.Tensor]:
    """The stretch of each rank, one after another in bytes of these sizes."""
    stops = accumulate(sizes)
    return {r: bits[at - n : at] for r, n, at in zip(ranks, sizes, stops, strict=True)}
