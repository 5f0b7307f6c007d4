"""What ranks are asked that leave their process group, and join another."""

from __future__ import annotations

import gc
import weakref
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from xlayout.shard.execute import reshard
from xlayout_torch import transport

__all__ = ["in_two_worlds"]

RANKS = (0, 2)
"""Those that have a group of their own, in a world of three."""


def in_two_worlds(rank: int, store: str) -> tuple[list[Any], int]:
    """What two ranks gather in one world and in the next; how many groups outlive their world."""
    found, groups = [], []
    for world in ("first", "second"):
        if world == "second":
            dist.destroy_process_group()
            dist.init_process_group("gloo", store=dist.FileStore(store, 3), rank=rank, world_size=3)
        mesh = DeviceMesh("cpu", [[r] for r in RANKS])
        if rank in RANKS:
            found.append(_gathered(rank, mesh))
            groups.append(weakref.ref(transport._group_of(dist.group.WORLD, RANKS)))
    gc.collect()
    return found, sum(group() is not None for group in groups)


def _gathered(rank: int, mesh: DeviceMesh) -> Any:
    """As over a transport that has collectives only."""
    part = torch.arange(2.0) + RANKS.index(rank) * 2
    x = DTensor.from_local(part, mesh, [Shard(0), Replicate()], run_check=False)
    with mock.patch.object(transport, "_in_pairs", return_value=False):
        return reshard(x, [Replicate()] * 2).to_local().tolist()
