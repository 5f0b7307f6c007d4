"""Plan: many strided copies in one table of numbers, and one launch for each kind of tile.

A piece is a copy cut into tiles: `Cut.words` in the table, which begins with those of all pieces.
Behind them are the jobs. Where a launch has several pieces, a job tells which piece a group of
programs works on, and from which tile on: piece * 2**32 + tile. Pieces are counted over the plan.

Addresses are not in the table: they are what changes from call to call, and the table can stay on
a device. They come as the plan's ends, two for each piece.

Programs are started in the order of the jobs. Pieces whose rows lie between each other in an input
or an output, as columns do that are split or merged, take turns: what is moved at a time is near.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xlayout_triton.tile import MOST_TILES, VECTOR, Cut, Loop, Tile, cut
from xlayout_triton.words import VECTORS

__all__ = [
    "ALONE",
    "FIRST",
    "FURTHER",
    "Launch",
    "Moves",
    "Piece",
    "Plan",
    "alignment",
    "pieces_of",
    "plan",
    "planned",
]

Move = tuple[int, int, tuple[int, int, tuple[Loop, ...]]]
Moves = tuple[Move, ...]
"""(input, output, (from, to, loops)), in elements."""

ALONE, FIRST, FURTHER = range(3)
"""How launches are linked: not at all, or as the first or another launch of a plan, in a chain."""

JOBS = 1 << 12
"""Jobs of a launch at most; where there would be more, a job is more programs."""

GROUP = 1 << 6
"""Programs of a job where pieces have many tiles: fewer are found sooner, in the first cache."""

IDLE = 1 << 6
"""Programs for each that may find nothing to do, at the end of a piece, so that jobs are larger."""


class Piece(NamedTuple):
    """A copy cut into tiles, and the numbers of the input and the output that it is between."""

    cut: Cut
    places: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Launch:
    """Programs of one kind.

    Args:
        tile: what the kernel is compiled for.
        programs: how many.
        first: the number of its first piece.
        jobs: where the table tells of its jobs; None where there is one piece, which needs none.
        group: programs of a job.
    """

    tile: Tile
    programs: int
    first: int
    jobs: int | None
    group: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Strided copies, ready to be launched.

    Args:
        words: the table.
        launches: what to launch on it.
        places: (input, output) of each piece.
    """

    words: array[int]
    launches: tuple[Launch, ...]
    places: tuple[tuple[int, int], ...]

    @property
    def in_words(self) -> frozenset[tuple[int, int]]:
        """(way, bytes of an element) of all that is moved in words."""
        tiles = [one.tile for one in self.launches]
        return frozenset((tile.way, tile.unit) for tile in tiles if tile.way != VECTORS)

    def ends(self, addresses: Sequence[int]) -> array[int]:
        """The addresses of each piece's input and output, which are positions among those given."""
        return array("q", [addresses[end] for place in self.places for end in place])


def alignment(address: int) -> int:
    """The largest power of two up to a vector's size that divides an address.

    >>> [alignment(a) for a in (512, 8, 6, 3)]
    [16, 8, 2, 1]
    """
    return math.gcd(address, VECTOR)


def pieces_of(
    moves: Moves, itemsize: int, inputs: Sequence[int], outputs: Sequence[int]
) -> list[Piece] | None:
    """The pieces of all moves, or None where one is too much for the kernel.

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
        found.append(Piece(one, (source, target)))
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
    """The plan of all moves, or None as in `pieces_of`, of which each call has the arguments.

    Places count the inputs and then the outputs of one call after the other.
    """
    pieces: list[Piece] = []
    first = 0
    for moves, itemsize, inputs, outputs in calls:
        found = pieces_of(moves, itemsize, inputs, outputs)
        if found is None:
            return None
        target = first + len(inputs)
        pieces += [Piece(one, (first + j, target + k)) for one, (j, k) in found]
        first = target + len(outputs)
    made = plan(pieces)
    return made if all(one.programs < MOST_TILES for one in made.launches) else None


def plan(pieces: Iterable[Piece]) -> Plan:
    """A launch for each kind of tile, of large ones first: what ends last is then short."""
    found: dict[Tile, list[Piece]] = {}
    for piece in pieces:
        found.setdefault(piece.cut.tile, []).append(piece)
    kinds = dict(sorted(found.items(), key=lambda kind: -kind[0].nbytes))
    ordered = [piece for members in kinds.values() for piece in members]
    words = array("q", [word for piece in ordered for word in piece.cut.words])
    launches, first = [], 0
    for tile, members in kinds.items():
        counts = [piece.cut.count for piece in members]
        if len(members) == 1:
            launches.append(Launch(tile, counts[0], first, None, 1))
        else:
            group = _group(counts)
            jobs = _jobs(members, first, group)
            launches.append(Launch(tile, len(jobs) * group, first, len(words), group))
            words.extend(jobs)
        first += len(members)
    return Plan(words, tuple(launches), tuple(piece.places for piece in ordered))


def _group(counts: Sequence[int]) -> int:
    """Programs of a job, for pieces of so many tiles."""
    group, programs = 1, sum(counts)
    while programs > group * JOBS or (
        group < GROUP and sum(-count % (2 * group) for count in counts) * IDLE <= programs
    ):
        group *= 2
    return group


def _jobs(members: Sequence[Piece], number: int, group: int) -> array[int]:
    """The jobs of some pieces, one piece after another but for those that take turns.

    Pieces are counted from `number` on.
    """
    jobs: array[int] = array("q")
    first = 0
    for last in range(1, len(members) + 1):
        if last < len(members) and _mixed(members[last - 1], members[last]):
            continue
        own = [_tiles(number + k, members[k].cut.count, group) for k in range(first, last)]
        if len(own) == 1:
            jobs.extend(own[0])
        else:  # by how far each piece is by then
            turns = [(place / len(some), job) for some in own for place, job in enumerate(some)]
            jobs.extend(job for _, job in sorted(turns))
        first = last
    return jobs


def _tiles(piece: int, count: int, group: int) -> range:
    """The jobs of a piece."""
    return range(piece << 32, (piece << 32) + count, group)


def _mixed(first: Piece, second: Piece) -> bool:
    """Whether two pieces are read or written in rows that lie between each other."""
    return any(_between(first, second, side) for side in range(2))


def _between(first: Piece, second: Piece, side: int) -> bool:
    """Whether rows of two pieces lie between each other, in an input (0) or in an output (1)."""
    if first.places[side] != second.places[side] or first.cut.reach[side] == first.cut.tile.nbytes:
        return False
    (start, stop), (begin, end) = first.cut.spans[side], second.cut.spans[side]
    return start < end and begin < stop
