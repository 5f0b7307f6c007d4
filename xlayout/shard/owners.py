"""Owners: the source cut into regions, each held by one set of ranks.

Regions are disjoint, so an element is in one region however many ranks hold it; parts that overlap
partly (keys and values on more ranks than there are heads) are cut into several. A rank gets each
region from one owner: itself if possible, else the owner nearest on the mesh.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from xlayout.algebra import Layout, Piece
from xlayout.algebra.shapes import Shape, bounds
from xlayout.shard.mesh import Mesh
from xlayout.shard.sharding import Sharding, Stretches, part, stored
from xlayout.shard.split import Runs, merged

__all__ = ["Region", "common", "held", "local_shapes", "regions", "sender", "whole"]


@dataclass(frozen=True, slots=True)
class Region:
    """A box of one array that the same ranks hold.

    Attributes:
        array: the number of the array.
        owned: the ranges along each of its axes.
        ranks: the ranks that hold it, in ascending order.
    """

    array: int
    owned: tuple[Runs, ...]
    ranks: tuple[int, ...]


@lru_cache(1024)
def regions(shardings: tuple[Sharding, ...], shapes: tuple[Shape, ...]) -> tuple[Region, ...]:
    """All regions of all arrays, empty ones left out."""
    return tuple(
        Region(array, owned, ranks)
        for array, (sharding, shape) in enumerate(zip(shardings, shapes, strict=True))
        for owned, ranks in _boxes(sharding, shape).items()
    )


def _boxes(sharding: Sharding, shape: Shape) -> dict[tuple[Runs, ...], tuple[int, ...]]:
    """{the ranges along each axis: the ranks that hold them} of the regions of one array."""
    mesh = sharding.mesh
    at_place = [_atoms(sharding, k, n) for k, n in enumerate(sharding.shape(shape))]
    holders: dict[tuple[Runs, ...], list[int]] = defaultdict(list)
    for rank in range(mesh.size):
        at = mesh.coordinates(rank)
        mine = [atoms[tuple(at[a] for a in sharding.axes(k))] for k, atoms in enumerate(at_place)]
        for owned in itertools.product(*mine):
            holders[owned].append(rank)
    return {owned: tuple(ranks) for owned, ranks in holders.items()}


def _atoms(sharding: Sharding, axis: int, n: int) -> dict[tuple[int, ...], list[Runs]]:
    """For each place on the mesh axes the atoms of its part: ranges with one set of holders."""
    parts = {place: sharding.runs(axis, n, place) for place in sharding.places(axis)}
    if not sharding.split(axis).overlaps:
        return {place: [runs] if runs else [] for place, runs in parts.items()}
    starting, stopping = defaultdict(list), defaultdict(list)
    for place, runs in parts.items():
        for run in runs:
            starting[run.start].append(place)
            stopping[run.stop].append(place)
    found: dict[frozenset[tuple[int, ...]], list[range]] = defaultdict(list)
    holding: set[tuple[int, ...]] = set()
    for low, high in itertools.pairwise(sorted({*starting, *stopping})):
        holding = holding.difference(stopping[low]).union(starting[low])
        found[frozenset(holding)].append(range(low, high))
    atoms: dict[tuple[int, ...], list[Runs]] = {place: [] for place in parts}
    for who, ranges in found.items():
        for place in who:
            atoms[place].append(merged(iter(ranges)))
    return atoms


def sender(mesh: Mesh, region: Region, rank: int) -> int:
    """The owner of a region that serves a rank: itself, else the one nearest on the mesh.

    Owners differ along mesh axes that do not cut the array. The owner that agrees with the rank
    there is a different one for every rank, which balances the senders.
    """
    if len(region.ranks) == 1:
        return region.ranks[0]
    here = mesh.coordinates(rank)

    def distance(owner: int) -> tuple[int, int]:
        there = mesh.coordinates(owner)
        apart = sum(a != b for a, b in zip(here, there, strict=True))
        return apart, (owner - rank) % mesh.size

    return min(region.ranks, key=distance)


def local_shapes(
    shardings: tuple[Sharding, ...], shapes: tuple[Shape, ...], rank: int
) -> tuple[Shape, ...]:
    """The shapes that a rank stores of each array."""
    return tuple(s.local_shape(rank, shape) for s, shape in zip(shardings, shapes, strict=True))


def held(
    shardings: tuple[Sharding, ...],
    shapes: tuple[Shape, ...],
    rank: int,
    region: Region | None = None,
) -> tuple[Piece, ...]:
    """The pieces from all arrays to what a rank stores of them, or of one region only."""
    stores = bounds(local_shapes(shardings, shapes, rank))
    found: list[Piece] = []
    for array, (first, _) in enumerate(bounds(shapes)):
        sharding, shape = shardings[array], shapes[array]
        if region is None:
            pieces = sharding.layout(rank, shape).pieces
        elif region.array == array:
            owned = sharding.owned(rank, shape)
            pieces = part(
                [common(mine, box) for mine, box in zip(owned, region.owned, strict=True)],
                sharding.shape(shape),
                sharding.local_shape(rank, shape),
            )
        else:
            continue
        found += [p.shifted(first, stores[array][0]) for p in pieces]
    return tuple(found)


def common(mine: Runs, box: Runs) -> Stretches:
    """The runs of a box as stretches of what a rank stores."""
    if mine == box:
        return stored(mine)
    found = []
    for start, at, n in stored(mine):
        for run in box:
            low, high = max(start, run.start), min(start + n, run.stop)
            if low < high:
                found.append((low, at + low - start, high - low))
    return tuple(found)


@lru_cache(1024)
def whole(sharding: Sharding, shape: Shape) -> Layout:
    """The layout from what all ranks store, in rank order, to the whole array."""
    ranks = range(sharding.mesh.size)
    stores = tuple(sharding.local_shape(rank, shape) for rank in ranks)
    starts = list(itertools.accumulate(map(math.prod, stores), initial=0))
    pieces = [
        piece.inverse().shifted(starts[region.ranks[0]], 0)
        for region in regions((sharding,), (shape,))
        for piece in held((sharding,), (shape,), region.ranks[0], region)
    ]
    return Layout(stores, (shape,), tuple(pieces))
