"""Rounds: messages of any size as a few permutations, each of one size.

A permutation among ranks (every rank sends at most once and receives at most once, all the same
number of elements) is what accelerators move best. Messages are cut to a common quantum, so that
nothing is padded; if that would take too many rounds, each round sends from the largest remainders
at a common width, with at most a tenth of padding.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

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


_Rest = tuple[int, int, int]
"""(elements left, less than 0 so that the most come first; message; receiver)"""


def in_rounds(messages: Sequence[Message], ranks: int) -> tuple[Round, ...]:
    """Remote messages as rounds: without padding, if at most 4(ranks - 1) rounds are enough.

    Otherwise rounds as wide as a tenth of padding allows; each completes at least one message.
    """
    remote = sorted(
        (m for m in messages if m.is_remote), key=lambda m: ((m.dst - m.src) % ranks, m.src)
    )
    sizes = [m.elements for m in remote]
    quantum, most = math.gcd(*sizes), 4 * (ranks - 1)
    if _degree(remote, sizes, ranks) <= most * quantum:
        rounds = _coloured(remote, sizes, quantum)
        if len(rounds) <= most:  # the busiest rank alone would need no more, but others may clash
            return rounds
    return tuple(_peeled(remote, sizes))


def _degree(messages: Sequence[Message], sizes: Sequence[int], ranks: int) -> int:
    """How many elements the busiest rank sends or receives."""
    sends, receives = [0] * ranks, [0] * ranks
    for m, size in zip(messages, sizes, strict=True):
        sends[m.src] += size
        receives[m.dst] += size
    return max(*sends, *receives)


def _coloured(messages: Sequence[Message], sizes: Sequence[int], quantum: int) -> tuple[Round, ...]:
    """Quanta, each in the first round in which both its ranks are free."""
    rounds: list[list[Transfer]] = []
    sends, receives = defaultdict[int, int](int), defaultdict[int, int](int)  # a bit for each round
    for m, size in zip(messages, sizes, strict=True):
        for first in range(0, size, quantum):
            taken = sends[m.src] | receives[m.dst]
            free = ~taken & (taken + 1)
            sends[m.src] |= free
            receives[m.dst] |= free
            k = free.bit_length() - 1
            if k == len(rounds):
                rounds.append([])
            rounds[k].append(Transfer(m, first, first + quantum))
    return tuple(Round(quantum, tuple(transfers)) for transfers in rounds)


def _peeled(messages: Sequence[Message], sizes: Sequence[int]) -> Iterator[Round]:
    """Rounds of the largest remainders between disjoint ranks, at a common width."""
    queues: dict[int, list[_Rest]] = defaultdict(list)  # by sender, largest first
    for less, k in sorted((-size, k) for k, size in enumerate(sizes)):
        queues[messages[k].src].append((less, k, messages[k].dst))
    while queues:
        chosen = list(_largest(queues))
        width = _width([size for size, *_ in chosen])
        transfers = []
        for size, k, src, at in chosen:
            first, last = sizes[k] - size, sizes[k] - max(0, size - width)
            transfers.append(Transfer(messages[k], first, last))
            del queues[src][at]
            if last < sizes[k]:
                insort(queues[src], (last - sizes[k], k, messages[k].dst))
            elif not queues[src]:
                del queues[src]
        yield Round(width, tuple(transfers))


def _largest(queues: Mapping[int, Sequence[_Rest]]) -> Iterator[tuple[int, int, int, int]]:
    """(what remains, message, sender, place in its queue): the largest first, of free ranks."""
    receiving: set[int] = set()
    heads = [(queue[0], src, 0) for src, queue in queues.items()]
    heapify(heads)
    while heads:
        (less, k, dst), src, at = heads[0]
        if dst not in receiving:
            receiving.add(dst)
            yield -less, k, src, at
            heappop(heads)
            continue
        queue = queues[src]
        for later in range(at + 1, len(queue)):
            if queue[later][2] not in receiving:
                heapreplace(heads, (queue[later], src, later))
                break
        else:
            heappop(heads)


def _width(sizes: Sequence[int]) -> int:
    """The largest of some descending sizes at which at most a tenth is padded."""
    width = below = 0
    for k, size in enumerate(reversed(sizes)):
        useful = below + (len(sizes) - k) * size
        if 10 * (len(sizes) * size - useful) > useful:
            break  # at a larger width more of it is padding
        width, below = size, below + size
    return width
