"""The regions of a tile, read into and written from one flat array."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xlayout.port.formats import numpy_dtype

if TYPE_CHECKING:
    from xlayout.port.formats import Region, Sink, Source
    from xlayout.port.formats.base import Array
    from xlayout.port.move import Buffers, Move, Tile

__all__ = ["gather", "read_tile", "scatter", "written"]


def gather(source: Source, name: str, regions: Sequence[Region], out: Array, /) -> Array:
    """Read regions of a tensor one after another into a flat array, and return it."""
    for region, part in _parts(regions, out):
        source.read(name, region, out=part)
    return out


def read_tile(source: Source, move: Move, tile: Tile, buffers: Buffers, start: int = 0) -> Array:
    """Read a tile and return it in the target's layout, with its values unchanged.

    The buffers are used from the byte `start` on.
    """
    dtype = numpy_dtype(move.change.source)
    read = buffers.carve(start, dtype, (tile.layout.size,))
    gather(source, move.source.tensor, tile.read, read)
    read = read.reshape(tile.layout.in_shape)
    if tile.layout.is_identity:
        return read.reshape(tile.layout.out_shape)
    behind = start + move.buffers(move.lead)[0]
    moved = buffers.carve(behind, dtype, tile.layout.out_shape)
    tile.layout(read, out=moved)
    return moved


def written(sink: Sink, name: str, regions: Sequence[Region], out: Array, /) -> list[Region]:
    """Return the regions that an interrupted run has written, reading them into a flat array."""
    return [region for region, part in _parts(regions, out) if sink.holds(name, region, part)]


def scatter(
    sink: Sink, name: str, regions: Sequence[Region], x: Array, /, *, but: Sequence[Region]
) -> None:
    """Write a flat array as regions of a tensor, except those that are there already."""
    for region, part in _parts(regions, x):
        if region not in but:
            sink.write(name, part, region)


def _parts(regions: Sequence[Region], x: Array) -> Iterator[tuple[Region, Array]]:
    begin = 0
    for region in regions:
        shape = tuple(cut.stop - cut.start for cut in region)
        end = begin + math.prod(shape)
        yield region, x[begin:end].reshape(shape)
        begin = end
