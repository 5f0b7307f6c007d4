"""Blocks: S_in⁻¹ >> L >> S_out between all ranks at once, and the part of one rank in it.

If axes are cut evenly, it is a handful of pieces for any number of ranks. Some of their loops run
over ranks: fixing the sender leaves the blocks that it sends, fixing the receiver those that it
receives.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from xlayout.algebra import Layout, Piece
from xlayout.algebra.compose import MAX_PIECES, compose
from xlayout.algebra.piece import Loop
from xlayout.algebra.shapes import Shape, bounds
from xlayout.shard.message import Form, settled
from xlayout.shard.sharding import Sharding
from xlayout.shard.spread import Owners, places_in, spread

__all__ = ["Block", "Blocks"]

Block = tuple[int, int, int, Form]
"""(the other rank, first address on the sender, first address on the receiver, form)"""

_Held = Callable[[int], tuple[Shape, ...]]
"""rank -> the shapes of what it holds."""

_MOST = 4 * MAX_PIECES  # before merging; what comes to more is hardly ever few pieces merged

_Jump = tuple[int, int, int, int]
"""(over sending ranks, within the sender, over receiving ranks, within the receiver)"""


@dataclass(frozen=True, slots=True)
class _Strip:
    """One piece, with the loops over ranks apart from those over elements.

    Attributes:
        arrays: the number of the input, and of the output.
        copies: for each rank, its distance from the first rank that holds the same.
        at: the first address on the sender, and on the receiver.
        loops: the loops over elements.
        from_sender: by sending rank, the jumps of the loops over senders.
        to_receivers: the jumps of the loops over receivers alone.
        from_receiver: by receiving rank, the jumps of the loops over receivers.
        to_senders: the jumps of the loops over senders alone.
    """

    arrays: tuple[int, int]
    copies: list[int]
    at: tuple[int, int]
    loops: tuple[Loop, ...]
    from_sender: dict[int, list[_Jump]]
    to_receivers: list[_Jump]
    from_receiver: dict[int, list[_Jump]]
    to_senders: list[_Jump]


class Blocks:
    """All blocks of a layout between two shardings whose copies are held by groups of neighbours.

    Of the ranks that hold the same, the sender is the one at the receiver's position within its
    group: the receiver itself if possible, else a different rank for each receiver.
    """

    def __init__(
        self,
        layout: Layout,
        src: tuple[Sharding, ...],
        dst: tuple[Sharding, ...],
        stores: _Held,
        makes: _Held,
    ) -> None:
        self._stores, self._makes = stores, makes
        step = 1 << (max(layout.in_size, layout.out_size).bit_length() + 2)
        # By rank: of axes that are cut unevenly there may be a strip for every two ranks.
        self._out: list[tuple[list[int], dict[int, list[_Strip]]]] = []
        self._in: dict[int, list[_Strip]] = defaultdict(list)
        for array, owners, stored in _all(src, layout.in_shapes, step, copies=False):
            copies = places_in(src[array].mesh, owners)
            by_sender: dict[int, list[_Strip]] = defaultdict(list)
            self._out.append((copies, by_sender))
            reached = compose((p.inverse() for p in stored), layout.pieces)
            for made, _, to in _all(dst, layout.out_shapes, step, copies=True):
                for piece in compose(reached, to, _MOST):
                    strip = _strip(piece, (array, made), step, copies)
                    for rank in strip.from_sender:
                        by_sender[rank].append(strip)
                    for rank in strip.from_receiver:
                        self._in[rank].append(strip)

    def sent(self, rank: int) -> list[Block]:
        """What one rank sends, in the order of the receivers."""
        found: dict[int, list[tuple[int, int, tuple[Loop, ...]]]] = defaultdict(list)
        for copies, by_sender in self._out:
            first = rank - copies[rank]
            for strip in by_sender.get(first, ()):
                array, made = strip.arrays
                start = _start(self._stores, rank, array) + strip.at[0]
                for _, x, base, z in strip.from_sender[first]:
                    for _, more_x, over, more_z in strip.to_receivers:
                        to = base + over
                        if copies[to] == copies[rank]:
                            there = _start(self._makes, to, made) + strip.at[1] + z + more_z
                            found[to].append((start + x + more_x, there, strip.loops))
        return [(to, *settled(tuple(atoms))) for to, atoms in sorted(found.items())]

    def received(self, rank: int) -> list[Block]:
        """What one rank receives, in the order of the senders."""
        found: dict[int, list[tuple[int, int, tuple[Loop, ...]]]] = defaultdict(list)
        for strip in self._in.get(rank, ()):
            array, made = strip.arrays
            start = _start(self._makes, rank, made) + strip.at[1]
            for base, x, _, z in strip.from_receiver[rank]:
                for over, more_x, _, more_z in strip.to_senders:
                    sender = base + over + strip.copies[rank]
                    at = _start(self._stores, sender, array) + strip.at[0] + x + more_x
                    found[sender].append((at, start + z + more_z, strip.loops))
        return [(sender, *settled(tuple(atoms))) for sender, atoms in sorted(found.items())]


def _start(held: _Held, rank: int, array: int) -> int:
    """The first address of one of the arrays that a rank holds, which lie one after another."""
    return sum(map(math.prod, held(rank)[:array])) if array else 0


def _all(
    shardings: Sequence[Sharding], shapes: tuple[Shape, ...], step: int, *, copies: bool
) -> Iterator[tuple[int, Owners, list[Piece]]]:
    """(array, owners, pieces) of every array; see `spread`."""
    for array, (first, _) in enumerate(bounds(shapes)):
        found = spread(shardings[array], shapes[array], step, copies=copies)
        for owners, pieces in found.items():
            yield array, owners, [p.shifted(first, 0) for p in pieces]


def _strip(piece: Piece, arrays: tuple[int, int], step: int, copies: list[int]) -> _Strip:
    """A piece between addresses of `spread`, with loops over ranks and over elements apart."""
    (sender, at), (receiver, there) = divmod(piece.in_offset, step), divmod(piece.out_offset, step)
    jumps = [(n, (*_parted(x, step), *_parted(z, step))) for n, x, z in piece.loops]
    from_sender, from_receiver = defaultdict(list), defaultdict(list)
    for over, x, onto, z in _sums((n, jump) for n, jump in jumps if jump[0]):
        from_sender[sender + over].append((0, x, receiver + onto, z))
    for over, x, onto, z in _sums((n, jump) for n, jump in jumps if jump[2]):
        from_receiver[receiver + onto].append((sender + over, x, 0, z))
    return _Strip(
        arrays,
        copies,
        (at, there),
        tuple((n, x, z) for n, (over, x, onto, z) in jumps if not over and not onto),
        from_sender,
        _sums((n, jump) for n, jump in jumps if jump[2] and not jump[0]),
        from_receiver,
        _sums((n, jump) for n, jump in jumps if jump[0] and not jump[2]),
    )


def _parted(stride: int, step: int) -> tuple[int, int]:
    """A stride as (ranks, elements within a rank); the latter may be negative."""
    over, within = divmod(stride + step // 2, step)
    return over, within - step // 2


def _sums(loops: Iterable[tuple[int, Sequence[int]]]) -> list[_Jump]:
    """The jumps that the steps of some loops make."""
    found: list[_Jump] = [(0, 0, 0, 0)]
    for n, (a, b, c, d) in loops:
        found = [
            (p + k * a, q + k * b, r + k * c, s + k * d) for p, q, r, s in found for k in range(n)
        ]
    return found
