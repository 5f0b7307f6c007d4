"""The source that needs no exchange is found, or there is said to be none."""

from __future__ import annotations

import pytest

from xlayout.algebra import Layout, Piece
from xlayout.errors import SizeError
from xlayout.shard import Mesh, Sharding, Split, plan_reshard

# Each of two ranks wants half of each segment, that of the first in two parts that overlap.
FUSED = [
    Piece(x, z, ((n, 1, 1),))
    for x, z, n in ((0, 0, 3), (1, 3, 3), (8, 6, 4), (4, 10, 3), (5, 13, 3), (12, 16, 4))
]
GRID = Mesh((2, 2), ("a", "b"))
FLAT = Mesh((1, 2), ("a", "b"))


def rows(ranks: int) -> Sharding:
    return Sharding(Mesh(ranks, "tp"), ("tp",))


HALVES = Sharding(Mesh(2, "tp"), ("tp",), splits={0: Split(segments=2)})


@pytest.mark.parametrize(
    ("layout", "dst", "source"),
    [
        (Layout.identity((1 << 20, 4)), rows(2), rows(2)),  # long, but no stretches
        (Layout.slice((8,), 2, 6), rows(2), rows(2)),
        (Layout([(16,)], [(20,)], FUSED), rows(2), HALVES),
        (Layout.identity((8,)), Sharding(FLAT, (("a", "b"),)), Sharding(FLAT, ("b",))),
        (Layout.identity((1, 4)), Sharding(GRID, ("a", "b")), Sharding(GRID, ("a", "b"))),
        (Layout.identity((4, 1)), Sharding(GRID, ("b", "a")), Sharding(GRID, ("b", "a"))),
        (Layout.identity((1, 1)), Sharding(GRID, ("b", "a")), Sharding(GRID, (("a", "b"),))),
    ],
)
def test_a_source_is_found(layout: Layout, dst: Sharding, source: Sharding) -> None:
    assert plan_reshard(layout, dst, dst).pullback() == source
    assert plan_reshard(layout, source, dst).is_local


@pytest.mark.parametrize(
    ("layout", "ranks"),
    [
        (Layout.slice((8,), 0, 4), 2),  # the second rank wants what the first would hold
        (Layout.slice((8,), 4, 8), 2),
        (Layout(((2, 4),), ((3,),), (Piece(0, 0, ((3, 3, 1),)),)), 2),  # across rows
    ],
)
def test_there_is_none(layout: Layout, ranks: int) -> None:
    with pytest.raises(SizeError, match=r"^pullback: no sharding of .* gives every rank what it"):
        plan_reshard(layout, rows(ranks), rows(ranks)).pullback()
