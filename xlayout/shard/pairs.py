"""Pairs: blocks found separately for each pair of ranks, for parts that overlap.

Keys and values on more ranks than there are heads lie in regions with several owners, and each
receiver has to choose among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xlayout.algebra import Layout, Piece
from xlayout.algebra.compose import compose
from xlayout.shard.blocks import Block
from xlayout.shard.message import Form, bare, settled
from xlayout.shard.owners import held, regions, sender
from xlayout.shard.sharding import Sharding

__all__ = ["Pairs"]


class Pairs:
    """All blocks of a layout between any two shardings."""

    def __init__(
        self, layout: Layout, src: tuple[Sharding, ...], dst: tuple[Sharding, ...]
    ) -> None:
        self._layout, self._src, self._dst = layout, src, dst
        self._mesh = src[0].mesh
        self._images: dict[tuple[int, int], tuple[Piece, ...]] = {}
        self._places: dict[int, tuple[Piece, ...]] = {}
        self._regions = regions(src, layout.in_shapes)

    def sent(self, rank: int) -> list[Block]:
        """What one rank sends, in the order of the receivers."""
        mine = [(k, region) for k, region in enumerate(self._regions) if rank in region.ranks]
        return [
            (to, *block)
            for to in range(self._mesh.size)
            for block in self._block(
                rank, to, [k for k, region in mine if sender(self._mesh, region, to) == rank]
            )
        ]

    def received(self, rank: int) -> list[Block]:
        """What one rank receives, in the order of the senders."""
        asked: dict[int, list[int]] = {}
        for k, region in enumerate(self._regions):
            asked.setdefault(sender(self._mesh, region, rank), []).append(k)
        return [
            (source, *block)
            for source in sorted(asked)
            for block in self._block(source, rank, asked[source])
        ]

    def _block(
        self, source: int, to: int, numbers: Sequence[int]
    ) -> Iterator[tuple[int, int, Form]]:
        """What `source` sends `to` of some regions; nothing if it is empty."""
        there = self._place(to) if numbers else ()
        pieces = [p for k in numbers for p in compose(self._image(source, k), there)]
        if pieces:
            yield settled(bare(pieces))

    def _image(self, rank: int, number: int) -> tuple[Piece, ...]:
        """From what a rank stores of a region to the outputs of the layout."""
        key = rank, number
        if key not in self._images:
            stored = held(self._src, self._layout.in_shapes, rank, self._regions[number])
            self._images[key] = compose((p.inverse() for p in stored), self._layout.pieces)
        return self._images[key]

    def _place(self, rank: int) -> tuple[Piece, ...]:
        """From the outputs of the layout to what a rank stores of them."""
        if rank not in self._places:
            self._places[rank] = held(self._dst, self._layout.out_shapes, rank)
        return self._places[rank]
