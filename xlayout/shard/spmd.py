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
from xlayout.shard.message import Message
from xlayout.shard.plan import Plan

__all__ = ["Program", "program"]

_Way = tuple[Message, tuple[Piece, ...], tuple[Piece, ...]]
"""A message, from what the sender stores to its buffer, from the buffer that the receiver gets."""


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
    sent: list[dict[Piece, None]] = [{} for _ in range(plan.ranks)]
    got: list[list[Piece]] = [[] for _ in range(plan.ranks)]
    together = plan.collective
    ways = _by_rounds(plan) if together is None else _together(plan, together)
    outbox, inbox = _boxes(plan)
    travelled = set()
    for m, packs, unpacks in ways:
        sent[m.src] |= dict.fromkeys(packs)  # in a gather it is the same for all receivers
        got[m.dst] += unpacks
        travelled.add((m.src, m.dst))
    for m in plan.messages:
        if (m.src, m.dst) not in travelled:
            got[m.dst] += [p.shifted(inbox, 0) for p in m.block.pieces]
    ranks, wire = range(plan.ranks), ((inbox,),) if inbox else ()
    packed = [Layout._of((plan.stores(r), ((outbox,),), merge(sent[r]))) for r in ranks]
    unpacked = [Layout._of(((*wire, *plan.stores(r)), plan.makes(r), merge(got[r]))) for r in ranks]
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
            yield m, _moved(packs, 0, start), _moved(unpacks, start, 0)
        start += step.width


def _together(plan: Plan, together: Collective) -> Iterator[_Way]:
    """The messages of one collective: each rank of a group has a section in the buffer."""
    place = {rank: k for group in together.groups for k, rank in enumerate(group)}
    width = together.width
    own = [m for m in plan.messages if not m.is_remote]
    gathers = together.kind == "all_gather"
    # Including a rank's own part, which does not leave the rank, can make all ranks alike.
    along = not gathers and [m.elements for m in own] == [width] * plan.ranks
    for m in plan.messages:
        if m.is_remote or along:
            at = 0 if gathers else place[m.dst] * width
            unpacks = _moved(m.unpack.pieces, place[m.src] * width, 0)
            yield m, _moved(m.pack.pieces, 0, at), unpacks


def _moved(pieces: tuple[Piece, ...], in_by: int, out_by: int) -> tuple[Piece, ...]:
    return tuple(p.shifted(in_by, out_by) for p in pieces)
