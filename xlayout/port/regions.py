"""Several regions of one tensor as one flat array: what a tile reads, and what it writes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xlayout.port.formats import Region, Sink, Source
    from xlayout.port.formats.base import Array

__all__ = ["gather", "held", "scatter"]


def gather(source: Source, name: str, regions: Sequence[Region], out: Array, /) -> Array:
    """Read regions of a tensor one after another into a flat array, and return it."""
    for region, part in _parts(regions, out):
        source.read(name, region, out=part)
    return out


def held(sink: Sink, name: str, regions: Sequence[Region], out: Array, /) -> list[Region]:
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
