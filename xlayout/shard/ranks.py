"""Ranks: a plan run by the processes of torch.distributed, each on its part."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from xlayout.algebra import Layout
from xlayout.errors import InverseError
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
    plan = plan_reshard(layout, src, dst)  # one for all dtypes: nothing here counts bytes
    rank = torch.rank_of(mesh)

    def forward(*stores: Any, fill: Any = 0) -> tuple[Any, ...]:
        return run_part(plan, stores, rank, mesh, fill)

    def backward(*gradients: Any) -> tuple[Any, ...]:
        try:
            inverse = layout.inverse()
        except InverseError:  # an element that went to several places gets a sum
            return _sums(plan, gradients, rank, mesh)
        return run_part(plan_reshard(inverse, dst, src), gradients, rank, mesh)

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


def _sums(plan: Plan, gradients: Sequence[Any], rank: int, mesh: Any) -> tuple[Any, ...]:
    """The transpose of a layout that repeats elements, by the plan's own messages in reverse.

    Every rank adds up the gradients of one element before it sends them back. Where ranks hold
    copies of a result, the first rank's gradient counts; where they hold copies of an input, each
    of which may have been sent, all are summed.
    """
    torch = backend_module("torch", "collective")
    transport = backend_module("torch", "transport")
    own, part = plan.src[0].mesh, plan.part(rank)
    at, cutting = own.coordinates(rank), {name for s in (*plan.src, *plan.dst) for name in s.used}

    def copied(sharding: Sharding) -> list[int]:
        return [own.axis(name) for name in own.names if name in cutting.difference(sharding.used)]

    def transposed(layout: Layout, arrays: Sequence[Any]) -> Any:
        def run(*xs: Any) -> tuple[Any, ...]:
            return results_of(layout, xs)

        return torch.transposed(run, layout.in_shapes)(*arrays)

    counted = [
        torch.computed_zeros(g, g.shape) if any(at[axis] for axis in copied(sharding)) else g
        for g, sharding in zip(gradients, plan.dst, strict=True)
    ]
    buffer, *kept = transposed(part.unpack, counted)
    if not plan.is_local:
        buffer = transport.exchange(buffer, part.receives, part.sends, mesh)
    totals = [a + b for a, b in zip(kept, transposed(part.pack, [buffer]), strict=True)]
    for number, sharding in enumerate(plan.src):
        for axis in copied(sharding):
            totals[number] = transport.total(totals[number], mesh.get_group(axis).group_name)
    return tuple(totals)
