"""Message: what one rank sends another, as a layout; on the wire every element travels once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from xlayout.algebra import Layout, Piece
from xlayout.algebra.compose import disjoint
from xlayout.algebra.merge import merge
from xlayout.algebra.shapes import Shape

__all__ = ["Message"]


@dataclass(frozen=True, slots=True)
class Message:
    """Elements that one rank has and another needs; a rank's own part is a message too.

    Attributes:
        src: the rank that sends.
        dst: the rank that receives.
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
        """How many elements travel: one that lands in two places travels once."""
        return self.pack.out_size

    @property
    def pack(self) -> Layout:
        """From what the sender stores to the wire."""
        return packed(self.block)[0]

    @property
    def unpack(self) -> Layout:
        """From the wire to what the receiver stores; `pack >> unpack == block`."""
        return packed(self.block)[1]


def packed(block: Layout) -> tuple[Layout, Layout]:
    """A block in two: distinct elements onto a wire, and from the wire to their places.

    The order on the wire follows the pieces, and sender and receiver work it out on their own. So
    what is remembered goes by the pieces: equal blocks that are cut differently must not meet.
    """
    return _packed(block.in_shapes, block.out_shapes, block.pieces)


@lru_cache(1 << 14)
def _packed(
    in_shapes: tuple[Shape, ...], out_shapes: tuple[Shape, ...], pieces: tuple[Piece, ...]
) -> tuple[Layout, Layout]:
    wires: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
    packs, unpacks, size = [], [], 0
    for piece in pieces:
        moving = sorted((loop for loop in piece.loops if loop[1]), key=lambda loop: -loop[1])
        box = piece.in_offset, tuple((n, x) for n, x, _ in moving)
        steps, step = [], 1
        for n, _, _ in reversed(moving):
            steps.append(step)
            step *= n
        steps.reverse()
        if box not in wires:
            wires[box] = size
            loops = tuple((n, x, w) for (n, x, _), w in zip(moving, steps, strict=True))
            packs.append(Piece(piece.in_offset, size, loops))
            size += step
        onto = tuple((n, w, z) for (n, _, z), w in zip(moving, steps, strict=True))
        still = tuple(loop for loop in piece.loops if not loop[1])
        unpacks.append(Piece(wires[box], piece.out_offset, onto + still))
    if len(packs) > 1 and not disjoint(tuple(p.inverse() for p in packs)):
        return _by_element(Layout._of((in_shapes, out_shapes, pieces)))
    wire = ((size,),)
    return (
        Layout._of((in_shapes, wire, merge(packs))),
        Layout._of((wire, out_shapes, merge(unpacks))),
    )


def _by_element(block: Layout) -> tuple[Layout, Layout]:
    """The same where boxes overlap on the sending side (a repeat with an odd stride)."""
    used = sorted(set(block.index().tolist()) - {-1})
    cuts = [0, *(k for k, (a, b) in enumerate(pairwise(used), 1) if b != a + 1), len(used)]
    pieces = (Piece(used[low], low, ((high - low, 1, 1),)) for low, high in pairwise(cuts))
    pack = Layout(block.in_shapes, ((len(used),),), tuple(pieces))
    return pack, pack.inverse() >> block
