"""Plan: many strided copies in one table of numbers, and one launch for each kind of tile.

A piece is a copy cut into tiles, 40 words of the table: the address of its input and of its output
(or 0, where the launch says them), then `Cut.words`. Where a launch has several pieces, a job tells
which of them a group of programs works on, and from which tile on: piece * 2**32 + tile.

Programs are started in the order of the jobs. Pieces whose rows lie between each other in an
output, as columns that are merged do, take turns in it: what is written at a time is then near.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from xlayout_triton.tile import VECTOR, Cut, Loop, Tile, cut

__all__ = ["WORDS", "Launch", "Moves", "Plan", "alignment", "cuts", "plan", "planned"]

Move = tuple[int, int, tuple[int, int, tuple[Loop, ...]]]
Moves = tuple[Move, ...]
"""(input, output, (from, to, loops)), in elements."""

WORDS = 40
"""Numbers for each piece."""

BEYOND = 1 << 25
"""Bytes from which a copy is not kept in the cache: the half of an H200's, input and output."""

JOBS = 1 << 12
"""Jobs of a launch, one program each; where there would be more, a job is several programs."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Programs of one kind.

    Args:
        tile: what the kernel is compiled for.
        programs: how many.
        pieces: where the table tells of the pieces.
        jobs: where it tells of the jobs; None where there is one piece, which needs none.
        group: programs of a job.
        streams: whether it passes by the cache, which what it moves would only empty.
    """

    tile: Tile
    programs: int
    pieces: int
    jobs: int | None
    group: int
    streams: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Strided copies, ready to be launched.

    Args:
        words: the table; addresses are 0 as long as nobody writes them.
        launches: what to launch on it.
        places: (position in the table, input, output) of each piece.
    """

    words: array[int]
    launches: tuple[Launch, ...]
    places: tuple[tuple[int, int, int], ...]

    def at(self, addresses: Sequence[int]) -> Plan:
        """The same with addresses in the table; inputs and outputs are positions among them."""
        words = self.words[:]
        for place, source, target in self.places:
            words[place] = addresses[source]
            words[place + 1] = addresses[target]
        return Plan(words, self.launches, self.places)


def alignment(address: int) -> int:
    """The largest power of two up to a vector's size that divides an address.

    >>> [alignment(a) for a in (512, 8, 6, 3)]
    [16, 8, 2, 1]
    """
    return math.gcd(address, VECTOR)


def cuts(
    moves: Moves, itemsize: int, inputs: Sequence[int], outputs: Sequence[int]
) -> list[tuple[Cut, int, int]] | None:
    """(cut, input, output) for every move, or None where one is too much for the kernel.

    Args:
        moves: the copies.
        itemsize: bytes of an element.
        inputs: what divides the address of each input.
        outputs: what divides the address of each output.
    """
    found = []
    for source, target, (start, to, loops) in _split(moves, itemsize):
        one = cut(start, to, loops, itemsize, (inputs[source], outputs[target]))
        if one is None:
            return None
        found.append((one, source, target))
    return found


def _split(moves: Moves, itemsize: int) -> Iterator[Move]:
    """Moves that move something; a single run in vectors and a rest, which would narrow them."""
    for source, target, (start, to, loops) in moves:
        if any(n == 0 for n, _, _ in loops):
            continue
        step = VECTOR // math.gcd(VECTOR, itemsize)
        n, *steps = loops[0] if len(loops) == 1 else (0, 0, 0)
        rest = n % step
        if rest < n and rest and steps == [1, 1]:
            yield source, target, (start, to, ((n - rest, 1, 1),))
            yield source, target, (start + n - rest, to + n - rest, ((rest, 1, 1),))
        else:
            yield source, target, (start, to, loops)


def planned(*calls: tuple[Moves, int, Sequence[int], Sequence[int]]) -> Plan | None:
    """The plan of all moves, or None as in `cuts`, of which each call has the arguments.

    Places count the inputs and then the outputs of one call after the other.
    """
    pieces: list[tuple[Cut, int, int]] = []
    first = 0
    for moves, itemsize, inputs, outputs in calls:
        found = cuts(moves, itemsize, inputs, outputs)
        if found is None:
            return None
        target = first + len(inputs)
        pieces += [(one, first + j, target + k) for one, j, k in found]
        first = target + len(outputs)
    return plan(pieces)


def plan(pieces: Iterable[tuple[Cut, int, int]]) -> Plan:
    """A launch for each kind of tile; `pieces` as `cuts` gives them."""
    kinds: dict[Tile, list[tuple[Cut, int, int]]] = {}
    for piece in pieces:
        kinds.setdefault(piece[0].tile, []).append(piece)
    moved = sum(t.nbytes * sum([one.count for one, _, _ in some]) for t, some in kinds.items())
    words: array[int] = array("q")
    launches, places = [], []
    for tile, members in kinds.items():
        first, group = len(words), 1
        streams = moved >= BEYOND and min(tile.vectors) * tile.unit == VECTOR
        for one, source, target in members:
            places.append((len(words), source, target))
            words.extend((0, 0, *one.words))
        if len(members) == 1:
            launches.append(Launch(tile, members[0][0].count, first, None, 1, streams))
            continue
        while sum(one.count for one, _, _ in members) > group * JOBS:
            group *= 2
        jobs = _jobs(members, group)
        launches.append(Launch(tile, len(jobs) * group, first, len(words), group, streams))
        words.extend(jobs)
    return Plan(words, tuple(launches), tuple(places))


def _jobs(members: Sequence[tuple[Cut, int, int]], group: int) -> array[int]:
    """The jobs of some pieces, one piece after another but for those that take turns."""
    jobs: array[int] = array("q")
    first = 0
    for last in range(1, len(members) + 1):
        if last < len(members) and _mixed(members[last - 1], members[last]):
            continue
        own = [range(k << 32, (k << 32) + members[k][0].count, group) for k in range(first, last)]
        if len(own) == 1:
            jobs.extend(own[0])
        else:  # by how far each piece is by then
            turns = [(place / len(some), job) for some in own for place, job in enumerate(some)]
            jobs.extend(job for _, job in sorted(turns))
        first = last
    return jobs


def _mixed(first: tuple[Cut, int, int], second: tuple[Cut, int, int]) -> bool:
    """Whether two pieces are written in rows that lie between each other."""
    if first[2] != second[2] or first[0].reach[1] == first[0].tile.nbytes:
        return False
    (start, stop), (begin, end) = first[0].written, second[0].written
    return start < end and begin < stop
