"""Spmd: a plan as one program for all ranks, as a compiler of many devices wants it.

Every rank packs into one buffer that holds a stretch for each round, exchanges the stretches round
by round, and unpacks. Only the two layouts differ between ranks; all sizes are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from xlayout.algebra import Layout, Piece
from xlayout.algebra.compose import restrict
from xlayout.algebra.merge import merge
from xlayout.shard.plan import Plan

__all__ = ["Program", "program"]


@dataclass(frozen=True, slots=True)
class Program:
    """What all ranks run.

    Attributes:
        pack: for each rank, from what it stores to the buffer; None where nothing travels.
        rounds: of each round the width and the (sender, receiver) pairs.
        unpack: for each rank, from the buffer received and what it stores to its result.
    """

    pack: tuple[Layout, ...] | None
    rounds: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    unpack: tuple[Layout, ...]


def program(plan: Plan) -> Program:
    """The program of a plan whose parts are equally large on all ranks."""
    sent: list[list[Piece]] = [[] for _ in range(plan.ranks)]
    got: list[list[Piece]] = [[] for _ in range(plan.ranks)]
    starts = list(accumulate((r.width for r in plan.rounds), initial=0))
    for step, start in zip(plan.rounds, starts, strict=False):
        for t in step.transfers:
            stretch, m = (t.first, t.last), t.message
            sent[m.src] += _moved(restrict(m.pack.pieces, outputs=stretch), 0, start)
            got[m.dst] += _moved(restrict(m.unpack.pieces, inputs=stretch), start, 0)
    size = starts[-1]
    for m in plan.messages:
        if not m.is_remote:
            got[m.dst] += _moved(m.block.pieces, size, 0)
    wire = ((size,),) if size else ()
    ranks = range(plan.ranks)
    return Program(
        tuple(Layout._of((plan.stores(r), wire, merge(sent[r]))) for r in ranks) if size else None,
        tuple(
            (r.width, tuple((t.message.src, t.message.dst) for t in r.transfers))
            for r in plan.rounds
        ),
        tuple(Layout._of(((*wire, *plan.stores(r)), plan.makes(r), merge(got[r]))) for r in ranks),
    )


def _moved(pieces: tuple[Piece, ...], in_by: int, out_by: int) -> list[Piece]:
    return [p.shifted(in_by, out_by) for p in pieces]
