"""Ranks: a plan run by the processes of torch.distributed, each on its part."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from xlayout.algebra import Layout
from xlayout.registry import backend_module
from xlayout.shard.part import results_of
from xlayout.shard.plan import Plan, plan_reshard
from xlayout.shard.sharded_array import ShardedArray
from xlayout.shard.sharding import Sharding

__all__ = ["on_ranks", "run_part"]


def on_ranks(
    arrays: tuple[ShardedArray, ...], layout: Layout, dst: tuple[Sharding, ...], fill: Any
) -> tuple[Any, ...]:
    """A layout on DTensors."""
    torch = backend_module("torch", "collective")
    mesh = arrays[0].mesh
    src = tuple(a.sharding for a in arrays)
    placements = [arrays[0].native(sharding) for sharding in dst]
    plan = plan_reshard(layout, src, dst, itemsize=arrays[0].x.dtype.itemsize)
    rank = torch.rank_of(mesh)

    def forward(*stores: Any, fill: Any = 0) -> tuple[Any, ...]:
        return run_part(plan, stores, rank, mesh, fill)

    def backward(*gradients: Any) -> tuple[Any, ...]:
        back = plan_reshard(layout.inverse(), dst, src, itemsize=plan.itemsize)
        return run_part(back, gradients, rank, mesh)

    filled = partial(forward, fill=fill)
    made = torch.linear(forward, backward, [torch.local(a.x) for a in arrays], filled)
    return tuple(
        torch.whole(local, mesh, where, shape)
        for local, where, shape in zip(made, placements, layout.out_shapes, strict=True)
    )


def run_part(
    plan: Plan, stores: Sequence[Any], rank: int, mesh: Any = None, fill: Any = 0
) -> tuple[Any, ...]:
    """One rank's part of a plan on what it stores, over torch.distributed."""
    part = plan.part(rank)
    buffer = part.pack(*stores)
    if not plan.is_local:
        exchange = backend_module("torch", "transport").exchange
        buffer = exchange(buffer, part.sends, part.receives, mesh)
    return results_of(part.unpack, (buffer, *stores), fill)
