"""Spmd: a plan as one program for all ranks, for compilers that target many devices.

Every rank packs into one buffer, exchanges, and unpacks. All sizes are the same on all ranks; only
the two layouts may differ. The exchange is one collective if the messages are equivalent to one;
otherwise the buffer has a section for each round, and the rounds are sent in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xlayout.algebra import Layout, Piece
from xlayout.algebra.compose import restrict
from xlayout.algebra.merge import merge
from xlayout.shard.collective import Collective
from xlayout.shard.part import joined
from xlayout.shard.plan import Plan

__all__ = ["Program", "program"]

_Moved = tuple[int, int, tuple[Piece, ...]]
"""Pieces, and how far they are shifted on either side."""

_Way = tuple[int, int, _Moved, _Moved]
"""The sender, the receiver, from what the one stores to its buffer, from the buffer of the other"""


@dataclass(frozen=True, slots=True)
class Program:
    """What all ranks run.

    Attributes:
        pack: for each rank, from what it stores to the buffer; None if nothing is sent.
        collective: ("all_gather" or "all_to_all", the mesh axes along which it runs), or None.
        rounds: (width, (sender, receiver) pairs) of each round, if there is no collective.
        unpack: for each rank, from the buffer received and what it stores to its result.
    """

    pack: tuple[Layout, ...] | None
    collective: tuple[str, tuple[str, ...]] | None
    rounds: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    unpack: tuple[Layout, ...]


def program(plan: Plan) -> Program:
    """The program of a plan whose parts have equal sizes on all ranks."""
    sent: list[dict[_Moved, None]] = [{} for _ in range(plan.ranks)]
    got: list[list[_Moved]] = [[] for _ in range(plan.ranks)]
    together = plan.collective
    ways = _by_rounds(plan) if together is None else _together(plan, together)
    outbox, inbox = _boxes(plan)
    travelled = set()
    for src, dst, packs, unpacks in ways:
        sent[src][packs] = None  # in a gather it is the same for all receivers
        got[dst].append(unpacks)
        travelled.add((src, dst))
    for dst in range(plan.ranks):
        for src, start, there, form in plan.arriving(dst):
            if (src, dst) not in travelled:
                got[dst].append((inbox + start, there, form.pieces))
    ranks, wire = range(plan.ranks), ((inbox,),) if inbox else ()
    packed = [Layout._of((plan.stores(r), ((outbox,),), merge(joined([*sent[r]])))) for r in ranks]
    unpacked = [
        Layout._of(((*wire, *plan.stores(r)), plan.makes(r), merge(joined(got[r])))) for r in ranks
    ]
    pack, unpack = tuple(packed) if outbox else None, tuple(unpacked)
    if together is not None:
        names = plan.src[0].mesh.names
        along = together.kind, tuple(names[axis] for axis in together.axes)
        return Program(pack, along, (), unpack)
    pairs = (
        (r.width, tuple((t.message.src, t.message.dst) for t in r.transfers)) for r in plan.rounds
    )
    return Program(pack, None, tuple(pairs), unpack)


def _boxes(plan: Plan) -> tuple[int, int]:
    """Sizes of the buffer that is sent and of the one that is received."""
    together = plan.collective
    if together is None:
        size = sum(r.width for r in plan.rounds)
        return size, size
    size = together.width * len(together.groups[0])
    return together.width if together.kind == "all_gather" else size, size


def _by_rounds(plan: Plan) -> Iterator[_Way]:
    """The messages by rounds: each is sent from and received into the section of its round."""
    start = 0
    for step in plan.rounds:
        for t in step.transfers:
            stretch, m = (t.first, t.last), t.message
            packs = restrict(m.pack.pieces, outputs=stretch)
            unpacks = restrict(m.unpack.pieces, inputs=stretch)
            yield m.src, m.dst, (0, start, packs), (start, 0, unpacks)
        start += step.width


def _together(plan: Plan, together: Collective) -> Iterator[_Way]:
    """The messages of one collective: each rank of a group has a section in the buffer."""
    place = {rank: k for group in together.groups for k, rank in enumerate(group)}
    width = together.width
    gathers = together.kind == "all_gather"
    received = [plan.arriving(rank) for rank in range(plan.ranks)]
    own = [form.size for d, blocks in enumerate(received) for s, _, _, form in blocks if s == d]
    # Including a rank's own part, which does not leave the rank, can make all ranks alike.
    along = not gathers and own == [width] * plan.ranks
    for dst, blocks in enumerate(received):
        for src, start, there, form in blocks:
            if src != dst or along:
                at = 0 if gathers else place[dst] * width
                yield src, dst, (start, at, form.packs), (place[src] * width, there, form.unpacks)
