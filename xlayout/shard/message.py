"""Message: what one rank sends another, as a layout; every element is sent once.

How a block is packed depends on its form alone, not on where it starts on either side, and the
thousands of messages of a plan have only a handful of forms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from xlayout.algebra import Layout, Piece
from xlayout.algebra.compose import disjoint
from xlayout.algebra.merge import merge
from xlayout.algebra.piece import Loop
from xlayout.algebra.strided import row_major

__all__ = ["Atoms", "Form", "Message", "bare", "form_of", "packed", "settled"]

Atoms = tuple[tuple[int, int, tuple[Loop, ...]], ...]
"""Pieces as plain tuples: (in offset, out offset, loops)."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A block that starts at 0 on either side, and how it is packed.

    Attributes:
        pieces: from what the sender stores to what the receiver stores.
        size: number of elements sent.
        packs: from what the sender stores to the wire.
        unpacks: from the wire to what the receiver stores.
    """

    pieces: tuple[Piece, ...]
    size: int
    packs: tuple[Piece, ...]
    unpacks: tuple[Piece, ...]


class Message(NamedTuple):
    """Elements that one rank has and another needs; a rank's own part is a message too.

    Attributes:
        src: the sending rank.
        dst: the receiving rank.
        block: the layout from what `src` stores to what `dst` stores.
    """

    src: int
    dst: int
    block: Layout

    @property
    def is_remote(self) -> bool:
        """Whether it leaves the rank."""
        return self.src != self.dst

    @property
    def elements(self) -> int:
        """Number of elements sent; one that goes to two places is sent once."""
        return form_of(bare(self.block.pieces))[2].size

    @property
    def pack(self) -> Layout:
        """From what the sender stores to the wire."""
        return packed(self.block)[0]

    @property
    def unpack(self) -> Layout:
        """From the wire to what the receiver stores; `pack >> unpack == block`."""
        return packed(self.block)[1]


def packed(block: Layout) -> tuple[Layout, Layout]:
    """A block as two layouts: distinct elements to the wire, and from the wire to their places.

    The order on the wire follows the pieces, and sender and receiver compute it independently. So
    forms are cached by pieces: equal blocks that are cut differently have different orders.
    """
    first, last, form = form_of(bare(block.pieces))
    wire = ((form.size,),)
    return (
        Layout._of((block.in_shapes, wire, tuple(p.shifted(first, 0) for p in form.packs))),
        Layout._of((wire, block.out_shapes, tuple(p.shifted(0, last) for p in form.unpacks))),
    )


def form_of(atoms: Atoms) -> tuple[int, int, Form]:
    """(start on the sender, start on the receiver, form) of a block."""
    first, last, key = _moved_to_start(atoms)
    return first, last, _form(key)


def settled(atoms: Atoms) -> tuple[int, int, Form]:
    """The same after merging the pieces, which may come in any order."""
    first, last, key = _moved_to_start(atoms)
    return first, last, _settled(key)


def _moved_to_start(atoms: Atoms) -> tuple[int, int, Atoms]:
    if len(atoms) == 1:
        ((first, last, loops),) = atoms
        return first, last, ((0, 0, loops),)
    first, last = min(i for i, _, _ in atoms), min(o for _, o, _ in atoms)
    return first, last, tuple((i - first, o - last, loops) for i, o, loops in atoms)


def bare(pieces: Sequence[Piece]) -> Atoms:
    """Pieces as atoms; for no pieces, one atom of no elements."""
    return tuple((p.in_offset, p.out_offset, p.loops) for p in pieces) or ((0, 0, ((0, 1, 1),)),)


@lru_cache(1 << 14)
def _settled(atoms: Atoms) -> Form:
    return _form(bare(merge(Piece(*atom) for atom in atoms)))


@lru_cache(1 << 14)
def _form(atoms: Atoms) -> Form:
    wires: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
    packs, unpacks, size = [], [], 0
    pieces = tuple(Piece(*atom) for atom in atoms)
    for piece in pieces:
        moving = sorted((loop for loop in piece.loops if loop[1]), key=lambda loop: -loop[1])
        box = piece.in_offset, tuple((n, x) for n, x, _ in moving)
        counts = [n for n, _, _ in moving]
        steps = row_major(counts)
        if box not in wires:
            wires[box] = size
            loops = tuple((n, x, w) for (n, x, _), w in zip(moving, steps, strict=True))
            packs.append(Piece(piece.in_offset, size, loops))
            size += math.prod(counts)
        onto = tuple((n, w, z) for (n, _, z), w in zip(moving, steps, strict=True))
        still = tuple(loop for loop in piece.loops if not loop[1])
        unpacks.append(Piece(wires[box], piece.out_offset, onto + still))
    if len(packs) > 1 and not disjoint(tuple(p.inverse() for p in packs)):
        return _by_element(pieces)
    return Form(pieces, size, merge(packs), merge(unpacks))


def _by_element(pieces: tuple[Piece, ...]) -> Form:
    """The form of boxes that overlap on the sending side (a repeat with an odd stride)."""
    ends = max(p.in_end for p in pieces), max(p.out_end for p in pieces)
    block = Layout._of((((ends[0],),), ((ends[1],),), pieces))
    used = sorted(set(block.index().tolist()) - {-1})
    cuts = [0, *(k for k, (a, b) in enumerate(pairwise(used), 1) if b != a + 1), len(used)]
    packs = tuple(Piece(used[low], low, ((high - low, 1, 1),)) for low, high in pairwise(cuts))
    pack = Layout(block.in_shapes, ((len(used),),), packs)
    return Form(pieces, len(used), packs, (pack.inverse() >> block).pieces)
