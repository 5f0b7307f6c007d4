"""Gather: mesh axes taken out of a DTensor's sharding; cast first, with gradients summed backward.

If the parts are equal and a rank needs all of each, that is an all-gather, and a reduce-scatter in
the backward pass. Otherwise (an uneven axis, or a mesh axis that is not the minor one) it is the
exchange that moves least, and backward the same messages in reverse, summed where they arrive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.merge import merge
from xlayout.algebra.shapes import Shape
from xlayout.registry import backend_module
from xlayout.shard.plan import Plan, plan_reshard
from xlayout.shard.ranks import run_part
from xlayout.shard.sharded_array import ShardedArray
from xlayout.shard.sharding import Sharding
from xlayout.shard.spread import equal_segments

__all__ = ["gathered"]


def gathered(held: ShardedArray, gone: tuple[str, ...], dtype: Any, reduce_dtype: Any) -> Any:
    """A DTensor whose sharding has lost the mesh axes `gone`."""
    torch = backend_module("torch", "collective")
    x, src, mesh, shape = held.x, held.sharding, held.mesh, held.shape
    gone = tuple(name for name in src.mesh.names if name in gone and name in src.used)
    dst, rank = src.without(*gone), torch.rank_of(mesh)
    target, plan = held.native(dst), _plan(shape, src, dst)

    # These functions live as long as the graph does: nothing in them holds `x`.
    kind, held = x.dtype, replace(held, x=None)

    def gather(x: Any) -> Any:
        with torch.recomputed():
            return _along(torch.local(torch.cast(x, dtype)), plan, gone, rank, mesh)

    def forward(x: Any) -> tuple[Any, ...]:
        return (torch.whole(gather(x), mesh, target, shape),)

    def backward(gradient: Any) -> tuple[Any, ...]:
        # In parts: DTensor would first sum what is conjugated in name only, in its own dtype.
        part = torch.cast(torch.local(gradient), reduce_dtype)
        gradient = torch.whole(part, mesh, gradient.placements, shape)
        return (torch.cast(_summed(gradient, held, gone, rank), kind),)

    def again(gradient: Any) -> tuple[Any, ...]:  # of a gradient, which may lie in other placements
        return forward(torch.redistributed(gradient, held.native(src)))

    (made,) = torch.linear(again, backward, [x], forward)
    for tell in torch.LISTENERS:
        tell(made, x, gather)
    return made


def _plan(shape: Shape, src: Sharding, dst: Sharding) -> Plan:
    return plan_reshard(Layout.identity(shape), src, dst)


def _summed(gradient: Any, held: ShardedArray, gone: tuple[str, ...], rank: int) -> Any:
    """The gradient of the parts: summed along mesh axes where it is partial, else cut."""
    torch = backend_module("torch", "collective")
    src, mesh, shape = held.sharding, held.mesh, held.shape
    names = src.mesh.names
    kept = {*src.used}.difference(gone)
    partial = {names[k] for k in torch.partial(gradient)} - kept
    summed = tuple(name for name in gone if name in partial)
    whole = src.without(*summed)

    def partly(placements: Sequence[Any], left: set[str]) -> list[Any]:
        named = zip(names, gradient.placements, placements, strict=True)
        return [before if name in left else after for name, before, after in named]

    # Each plan sends between ranks that agree along the mesh axes that are partial.
    copies = torch.copies(gradient.placements)
    local = torch.local(torch.redistributed(gradient, partly(copies, partial)))
    current = Sharding.from_torch(mesh, copies, len(shape))
    if current != whole:
        (local,) = run_part(_plan(shape, current, whole), [local], rank, mesh)
    if summed:
        local = _back(local, _plan(shape, src, whole), summed, rank, mesh)
    made = torch.whole(local, mesh, partly(held.native(src), partial.difference(gone)), shape)
    # Sums what is still partial, now that it is small.
    return torch.redistributed(made, held.native(src))


def _along(part: Any, plan: Plan, gone: tuple[str, ...], rank: int, mesh: Any) -> Any:
    """This rank's array after a gather along some mesh axes."""
    rows = _rows(plan, gone, rank) if gone else None
    if rows is None:
        return run_part(plan, [part], rank, mesh)[0]
    axes = [plan.src[0].mesh.axis(name) for name in gone]
    flat = backend_module("torch", "transport").gather(part.reshape(-1), mesh, axes)
    return rows(flat, copy=None).contiguous()  # single columns are a view of the rows: transposed


def _back(whole: Any, plan: Plan, gone: tuple[str, ...], rank: int, mesh: Any) -> Any:
    """The transpose of `_along`: the gradient of this rank's part, summed over the ranks."""
    rows = _rows(plan, gone, rank)
    if rows is not None:
        axes = [plan.src[0].mesh.axis(name) for name in gone]
        flat = rows.inverse()(whole, copy=None)
        part = backend_module("torch", "transport").reduce_scatter(flat, mesh, axes)
        return part.reshape(plan.stores(rank)[0])
    sent = [m for m in plan.received(rank) if m.is_remote]
    got = [m for m in plan.sent(rank) if m.is_remote]
    sends, receives = [0] * plan.ranks, [0] * plan.ranks
    pieces, at = [], 0
    for m in sent:
        sends[m.src] = m.elements
        pieces += [p.inverse().shifted(0, at) for p in m.unpack.pieces]
        at += m.elements
    for m in got:
        receives[m.dst] = m.elements
    buffer = Layout._of((plan.makes(rank), ((at,),), merge(pieces)))(whole)
    buffer = backend_module("torch", "transport").exchange(buffer, sends, receives, mesh)
    total, at = whole.new_zeros(plan.stores(rank)[0]), 0
    for m in plan.sent(rank):  # in the order of the ranks
        if m.is_remote:
            given = m.pack.inverse()(buffer[at : at + m.elements])
            at += m.elements
        else:
            given = m.block.inverse()(whole)
        total += given
    return total


@lru_cache(1024)
def _rows(plan: Plan, gone: tuple[str, ...], rank: int) -> Layout | None:
    """From the concatenated parts along `gone` to what a rank needs; None if they are unequal."""
    sharding, (shape,) = plan.src[0], plan.layout.in_shapes
    mesh = sharding.mesh
    axes = [mesh.axis(name) for name in gone]
    for axis, n in enumerate(sharding.shape(shape)):
        order = sharding.axes(axis)
        kept = tuple(a for a in order if a not in axes)
        if order[: len(kept)] != kept or equal_segments(sharding, axis, n) is None:
            return None
    size = math.prod(plan.stores(rank)[0])
    pieces = []
    for m in plan.received(rank):
        at, row = mesh.coordinates(m.src), 0
        for axis in axes:
            row = row * mesh.shape[axis] + at[axis]
        pieces += [p.shifted(row * size, 0) for p in m.block.pieces]
    count = math.prod(mesh.shape[axis] for axis in axes)
    return Layout._of((((count * size,),), plan.makes(rank), merge(pieces)))
