"""Part: what one rank does of a plan, as two layouts with an exchange between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from xlayout.algebra import Layout
from xlayout.algebra.merge import merge
from xlayout.shard.owners import whole

if TYPE_CHECKING:
    from xlayout.shard.plan import Plan

__all__ = ["Part", "part_of", "simulated"]


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank does: pack, exchange with the others, unpack.

    Attributes:
        sends: elements for each rank, in rank order.
        receives: elements from each rank, in rank order.
        pack: from what the rank stores to one buffer, the messages in rank order.
        unpack: from the buffer received, and what the rank stores already, to its result.
    """

    sends: tuple[int, ...]
    receives: tuple[int, ...]
    pack: Layout
    unpack: Layout


def part_of(plan: Plan, rank: int) -> Part:
    """The part of one rank."""
    sends, receives = [0] * plan.ranks, [0] * plan.ranks
    packs, unpacks = [], []
    at = 0
    for m in plan.sent(rank):
        if m.is_remote:
            sends[m.dst] = m.elements
            packs += [p.shifted(0, at) for p in m.pack.pieces]
            at += m.elements
    pack = Layout._of((plan.stores(rank), ((at,),), merge(packs)))
    at = 0
    for m in plan.received(rank):
        if m.is_remote:
            receives[m.src] = m.elements
            unpacks += [p.shifted(at, 0) for p in m.unpack.pieces]
            at += m.elements
    for m in plan.received(rank):
        if not m.is_remote:
            unpacks += [p.shifted(at, 0) for p in m.block.pieces]
    unpack = Layout._of((((at,), *plan.stores(rank)), plan.makes(rank), merge(unpacks)))
    return Part(tuple(sends), tuple(receives), pack, unpack)


def simulated(plan: Plan, arrays: tuple[Any, ...]) -> Any:
    """Every rank's part, one after the other, on the parts of whole arrays; the whole result."""
    everyone = range(plan.ranks)
    stores = [
        tuple(s.layout(r, a.shape)(a) for s, a in zip(plan.src, arrays, strict=True))
        for r in everyone
    ]
    parts = [plan.part(r) for r in everyone]
    wires = [_cut(parts[r].pack(*stores[r]), parts[r].sends) for r in everyone]
    made = []
    for d in everyone:
        inbox = [wires[s][d] for s in everyone]
        buffer = Layout.concat([wire.shape for wire in inbox])(*inbox)
        result = parts[d].unpack(buffer, *stores[d])
        made.append(result if isinstance(result, tuple) else (result,))
    results = tuple(
        whole(sharding, shape)(*(made[r][k] for r in everyone))
        for k, (sharding, shape) in enumerate(zip(plan.dst, plan.layout.out_shapes, strict=True))
    )
    return results[0] if len(results) == 1 else results


def _cut(buffer: Any, sizes: Sequence[int]) -> list[Any]:
    stops = list(accumulate(sizes))
    return [buffer[stop - n : stop] for stop, n in zip(stops, sizes, strict=True)]
