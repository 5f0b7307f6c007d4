"""Rounds: messages of any size as a few permutations, each of one size.

A permutation among ranks (every rank sends at most once and receives at most once, all the same
number of elements) is what accelerators move best. Messages are cut to a common quantum, so that
nothing is padded; if that would take too many rounds, each round sends from the largest remainders
at a common width, with at most a tenth of padding.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xlayout.shard.message import Message

__all__ = ["Round", "Transfer", "in_rounds"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A part of one message: elements `first` to `last` (excluded) on the wire."""

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
        """Elements sent that no rank needs."""
        return sum(self.width - (t.last - t.first) for t in self.transfers)


def in_rounds(messages: Sequence[Message], ranks: int) -> tuple[Round, ...]:
    """Remote messages as rounds: without padding, if at most 4(ranks - 1) rounds are enough.

    Otherwise rounds as wide as a tenth of padding allows; each completes at least one message.
    """
    remote = [m for m in messages if m.is_remote]
    if not remote:
        return ()
    remote.sort(key=lambda m: ((m.dst - m.src) % ranks, m.src))
    quantum = math.gcd(*(m.elements for m in remote))
    if _degree(remote, quantum, ranks) <= 4 * (ranks - 1):
        return _coloured(remote, quantum)
    return tuple(_peeled(remote))


def _degree(messages: Sequence[Message], quantum: int, ranks: int) -> int:
    """How many quanta the busiest rank sends or receives: no schedule has fewer rounds."""
    sends, receives = [0] * ranks, [0] * ranks
    for m in messages:
        sends[m.src] += m.elements // quantum
        receives[m.dst] += m.elements // quantum
    return max(*sends, *receives)


def _coloured(messages: Sequence[Message], quantum: int) -> tuple[Round, ...]:
    """Quanta, each in the first round in which both its ranks are free."""
    rounds: list[list[Transfer]] = []
    sends, receives = defaultdict[int, int](int), defaultdict[int, int](int)  # a bit for each round
    for m in messages:
        for first in range(0, m.elements, quantum):
            taken = sends[m.src] | receives[m.dst]
            free = ~taken & (taken + 1)
            sends[m.src] |= free
            receives[m.dst] |= free
            k = free.bit_length() - 1
            if k == len(rounds):
                rounds.append([])
            rounds[k].append(Transfer(m, first, first + quantum))
    return tuple(Round(quantum, tuple(transfers)) for transfers in rounds)


def _peeled(messages: Sequence[Message]) -> Iterator[Round]:
    """Rounds of the largest remainders between disjoint ranks, at a common width."""
    sent = dict.fromkeys(range(len(messages)), 0)
    while sent:
        sending: set[int] = set()
        receiving: set[int] = set()
        chosen = []
        for k in sorted(sent, key=lambda k: sent[k] - messages[k].elements):
            m = messages[k]
            if m.src not in sending and m.dst not in receiving:
                sending.add(m.src)
                receiving.add(m.dst)
                chosen.append(k)
        width = _width([messages[k].elements - sent[k] for k in chosen])
        transfers = []
        for k in chosen:
            first, last = sent[k], min(sent[k] + width, messages[k].elements)
            transfers.append(Transfer(messages[k], first, last))
            sent[k] = last
            if last == messages[k].elements:
                del sent[k]
        yield Round(width, tuple(transfers))


def _width(sizes: Sequence[int]) -> int:
    """The largest of some sizes at which at most a tenth is padded; the smallest pads nothing."""

    def fits(width: int) -> bool:
        useful = sum(min(size, width) for size in sizes)
        return 10 * (len(sizes) * width - useful) <= useful

    return max(filter(fits, sizes))
