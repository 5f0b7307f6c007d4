"""How one canonical tensor is moved: its source and target, its layout, and changes of values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from xlayout.algebra import Layout
from xlayout.port.change import Change
from xlayout.port.formats import Region, TensorSpec
from xlayout.port.formats.base import require
from xlayout.port.places import Place
from xlayout.port.rules import Power, Rule

if TYPE_CHECKING:
    import numpy as np

    from xlayout.port.formats.base import Array

__all__ = ["Buffers", "Move", "Tile", "homeward"]

_LINE = 64  # bytes; buffers start on a cache line


@dataclass(frozen=True, slots=True)
class Tile:
    """A part of a move that is read, moved, changed and written at once.

    Args:
        layout: The layout from what is read to what is written.
        read: The regions of the source's tensor, in the order in which they are read.
        write: The regions of the target's tensor, in the order in which they are written.
    """

    layout: Layout
    read: tuple[Region, ...]
    write: tuple[Region, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """One canonical tensor between two checkpoints.

    Args:
        source: Its place in the source.
        target: Its place in the target.
        change: What happens to its values.
        sizes: The model's sizes.
        lead: The length of a tile, along the lead.
        checked: Whether every element is converted back and compared before it is written.
        chunk: The shape of the source's chunks, each of which is read whole; `()` if any part can
            be read on its own.
    """

    source: Place
    target: Place
    change: Change
    sizes: Mapping[str, int]
    lead: int
    checked: bool = False
    chunk: tuple[int, ...] = ()

    def layout(self, lead: int | None = None) -> Layout:
        """Return the layout from source to target, for the whole or for a tile of length `lead`."""
        sizes = tuple(self.sizes.items())
        return _compose(self.source.rule, self.target.rule, sizes, lead)

    @property
    def power(self) -> Power | None:
        """The factor of `change` as a power of a size; None if there is none, or two that mix."""
        source, target = self.source.rule.scale, self.target.rule.scale
        if source is None or target is None:
            return target or (source and source.inverse())
        return None

    def tiles(self) -> Iterator[Tile]:
        """Yield the tiles in canonical order."""
        leads = self.sizes[self.source.rule.lead]
        for start in range(0, leads, self.lead):
            stop = min(start + self.lead, leads)
            yield Tile(
                self.layout(stop - start),
                self.source.regions(self.sizes, start, stop),
                self.target.regions(self.sizes, start, stop),
            )

    def buffers(self, lead: int, /) -> tuple[int, int, int]:
        """Return the bytes that a tile takes as read, as laid out, and as changed."""
        elements = self.layout(lead).size
        size, new = (
            _aligned(elements * TensorSpec(dtype, ()).itemsize)
            for dtype in (self.change.source, self.change.target)
        )
        return (
            size,
            0 if self.layout().is_identity else size,
            0 if self.change.is_nothing else new,
        )

    @property
    def need(self) -> int:
        """Bytes of the buffers that a tile is read into, laid out in and changed in."""
        return sum(self.buffers(self.lead))

    @property
    def held(self) -> int:
        """Bytes of a chunk that tiles cut, stored plus decoded; 0 if they cut none."""
        if not self.chunk:
            return 0
        tile, *_ = self.source.regions(self.sizes, 0, self.lead)
        whole = self.source.rule.target_shape(self.sizes)
        if all(
            (cut.stop - cut.start) % c == 0 or c <= n == cut.stop - cut.start
            for cut, c, n in zip(tile, self.chunk, whole, strict=True)
        ):
            return 0
        return 2 * TensorSpec(self.change.source, self.chunk).nbytes

    def back(self) -> tuple[Move, Move]:
        """Return the moves that take both ends to the canonical layout, values untouched."""
        return (
            homeward(self.source, self.change.source, self.sizes, self.chunk),
            homeward(self.target, self.change.target, self.sizes),
        )


def homeward(
    place: Place, dtype: str, sizes: Mapping[str, int], chunk: tuple[int, ...] = (), /
) -> Move:
    """Return the move that takes a stored tensor to its canonical layout, values untouched."""
    home = replace(place, rule=_canonical(place.rule))
    return Move(place, home, Change(dtype, dtype), sizes, 1, chunk=chunk)


class Buffers:
    """The memory for tensor data, allocated once and reused for every tile.

    Args:
        nbytes: What the largest tile needs.
    """

    def __init__(self, nbytes: int, /) -> None:
        np = require("numpy")
        self._blob: Array = np.empty(nbytes, np.uint8)

    def carve(self, start: int, dtype: np.dtype[Any], shape: tuple[int, ...], /) -> Array:
        """Return the bytes from `start` on as an array."""
        stop = start + math.prod(shape) * dtype.itemsize
        return self._blob[start:stop].view(dtype).reshape(shape)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE


@cache
def _canonical(rule: Rule) -> Rule:
    return Rule(rule.name, rule.name, rule.pattern.partition(" -> ")[0])


@cache
def _compose(
    source: Rule, target: Rule, sizes: tuple[tuple[str, int], ...], lead: int | None
) -> Layout:
    known = dict(sizes)
    return source.layout(known, lead).inverse() >> target.layout(known, lead)
