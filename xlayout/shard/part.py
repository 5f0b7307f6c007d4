"""Part: what one rank does in a plan, as two layouts with an exchange between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from xlayout.algebra import Layout, Piece
from xlayout.algebra.merge import merge, progressions
from xlayout.algebra.piece import Loop, are_nested
from xlayout.shard.owners import whole

if TYPE_CHECKING:
    from xlayout.shard.plan import Plan

__all__ = ["Part", "joined", "part_of", "results_of", "simulated"]


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
    stores, makes = plan.stores(rank), plan.makes(rank)  # raises for a rank that does not exist
    sends, receives = [0] * plan.ranks, [0] * plan.ranks
    onto, from_wire, kept = [], [], []
    at = 0
    for dst, start, _, form in plan.blocks.sent(rank):
        if dst != rank:
            sends[dst] = form.size
            onto.append((start, at, form.packs))
            at += form.size
    pack = Layout._of((stores, ((at,),), merge(joined(onto))))
    at = 0
    for src, start, there, form in plan.arriving(rank):
        if src == rank:
            kept += [p.shifted(start, there) for p in form.pieces]
        else:
            receives[src] = form.size
            from_wire.append((at, there, form.unpacks))
            at += form.size
    unpacks = [*joined(from_wire), *(p.shifted(at, 0) for p in kept)]
    unpack = Layout._of((((at,), *stores), makes, merge(unpacks)))
    return Part(tuple(sends), tuple(receives), pack, unpack)


def joined(moved: Sequence[tuple[int, int, tuple[Piece, ...]]]) -> Iterator[Piece]:
    """Pieces, shifted on both sides; equal ones at equal distances become a loop."""

    def fits(pieces: tuple[Piece, ...], loop: Loop) -> bool:
        return all(are_nested((*p.loops, loop)) for p in pieces)

    for i, o, pieces, loop in progressions(moved, fits):
        yield from (Piece(p.in_offset + i, p.out_offset + o, (*p.loops, loop)) for p in pieces)


def simulated(plan: Plan, arrays: tuple[Any, ...]) -> Any:
    """The whole result, from running every rank's part in turn."""
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
        made.append(results_of(parts[d].unpack, (buffer, *stores[d])))
    results = tuple(
        whole(sharding, shape)(*(made[r][k] for r in everyone))
        for k, (sharding, shape) in enumerate(zip(plan.dst, plan.layout.out_shapes, strict=True))
    )
    return results[0] if len(results) == 1 else results


def results_of(layout: Layout, arrays: Sequence[Any], fill: Any = 0) -> tuple[Any, ...]:
    """The results of a layout as a tuple, even if there is only one."""
    made = layout(*arrays, fill=fill)
    return made if isinstance(made, tuple) else (made,)


def _cut(buffer: Any, sizes: Sequence[int]) -> list[Any]:
    stops = list(accumulate(sizes))
    return [buffer[stop - n : stop] for stop, n in zip(stops, sizes, strict=True)]
