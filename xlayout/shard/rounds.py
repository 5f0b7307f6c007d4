"""Rounds: messages of any size as a few permutations, each of one size.

A permutation among ranks (every rank sends at most once and receives at most once, all the same
number of elements) is what accelerators move best. Messages are cut to a common quantum, so that
nothing is padded; where that would take too many rounds the quantum grows, and ends are padded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xlayout.shard.message import Message

__all__ = ["Round", "Transfer", "in_rounds"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A stretch of one message: elements `first` to `last` (excluded) of its wire."""

    message: Message
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Round:
    """A permutation: no rank sends twice or receives twice; everyone sends `width` elements."""

    width: int
    transfers: tuple[Transfer, ...]

    @property
    def padding(self) -> int:
        """Elements sent that nobody needs."""
        return sum(self.width - (t.last - t.first) for t in self.transfers)


def in_rounds(messages: Sequence[Message], ranks: int) -> tuple[Round, ...]:
    """Remote messages as rounds: without padding in at most 4(ranks - 1) rounds if that can be.

    Else the fewest rounds whose padding stays within a tenth of the elements, else the least
    padding.
    """
    remote = [m for m in messages if m.is_remote]
    if not remote:
        return ()
    remote.sort(key=lambda m: ((m.dst - m.src) % ranks, m.src))
    needed = sum(m.elements for m in remote)
    quantum = math.gcd(*(m.elements for m in remote))
    if _degree(remote, quantum, ranks) <= 4 * (ranks - 1):
        return _coloured(remote, quantum)
    sizes = {m.elements for m in remote}
    tries = [_coloured(remote, size) for size in sorted(sizes)[:: max(1, len(sizes) // 8)]]
    tries.append(_coloured(remote, max(sizes)))
    close = [t for t in tries if sum(r.padding for r in t) * 10 <= needed]
    if close:
        return min(close, key=len)
    return min(tries, key=lambda t: sum(r.padding for r in t))


def _degree(messages: Sequence[Message], quantum: int, ranks: int) -> int:
    """How many quanta the busiest rank sends or receives: no schedule has fewer rounds."""
    sends, receives = [0] * ranks, [0] * ranks
    for m in messages:
        sends[m.src] += m.elements // quantum
        receives[m.dst] += m.elements // quantum
    return max(*sends, *receives)


def _coloured(messages: Sequence[Message], quantum: int) -> tuple[Round, ...]:
    """First fit, whole quanta before what is left over, larger rests first."""
    full, rests = [], []
    for m in messages:
        whole = m.elements // quantum * quantum
        full += [Transfer(m, at, at + quantum) for at in range(0, whole, quantum)]
        if whole < m.elements:
            rests.append(Transfer(m, whole, m.elements))
    rests.sort(key=lambda t: t.first - t.last)
    return tuple(
        Round(max(t.last - t.first for t in transfers), tuple(transfers))
        for transfers in (*_first_fit(full), *_first_fit(rests))
    )


def _first_fit(transfers: Sequence[Transfer]) -> list[list[Transfer]]:
    rounds: list[list[Transfer]] = []
    busy: list[tuple[set[int], set[int]]] = []
    for transfer in transfers:
        m = transfer.message
        free = (k for k, (out, into) in enumerate(busy) if m.src not in out and m.dst not in into)
        k = next(free, len(rounds))
        if k == len(rounds):
            rounds.append([])
            busy.append((set(), set()))
        rounds[k].append(transfer)
        busy[k][0].add(m.src)
        busy[k][1].add(m.dst)
    return rounds
