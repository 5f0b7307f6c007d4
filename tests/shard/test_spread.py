"""A sharding spread over all ranks is what the ranks hold, one by one."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.counted import counted
from tests.shard.meshes import MESHES, positions, shardings
from tests.table import pairs
from xlayout.algebra import Layout
from xlayout.shard import Mesh, Sharding, Split, plan_reshard
from xlayout.shard.spread import has_owners, places_in, spread

Case = tuple[Sharding, tuple[int, ...], int]


@st.composite
def cases(draw: DrawFn) -> Case:
    mesh = draw(st.sampled_from(MESHES))
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
    return draw(shardings(mesh, shape)), shape, 4 * math.prod(shape) + 4


def held(case: Case) -> dict[int, set[int]]:
    """For each position of the array, the addresses at which ranks hold it, by index arrays."""
    sharding, shape, step = case
    found: dict[int, set[int]] = defaultdict(set)
    for rank in range(sharding.mesh.size):
        for at, position in enumerate(positions(sharding, rank, shape).ravel().tolist()):
            if position >= 0:
                found[position].add(rank * step + at)
    return found


@settings(max_examples=200)
@given(cases())
def test_it_holds_what_the_ranks_hold(case: Case) -> None:
    sharding, shape, step = case
    found: dict[int, set[int]] = defaultdict(set)
    for pieces in spread(sharding, shape, step).values():
        for piece in pieces:
            for position, at in pairs(piece.in_offset, piece.out_offset, piece.loops):
                assert at not in found[position]
                found[position].add(at)
    assert found == held(case)


@settings(max_examples=200)
@given(cases())
def test_the_first_of_each_group_stands_for_all_that_hold_the_same(case: Case) -> None:
    sharding, shape, step = case
    if not has_owners(sharding, shape):
        return
    found: dict[int, set[int]] = {}
    for owners, pieces in spread(sharding, shape, step, copies=False).items():
        places = places_in(sharding.mesh, owners)
        for piece in pieces:
            for position, at in pairs(piece.in_offset, piece.out_offset, piece.loops):
                assert places[at // step] == 0
                assert position not in found
                found[position] = {at + place * step for place in set(places)}
    assert found == held(case)


def test_cut_evenly_it_is_a_piece_for_any_number_of_ranks() -> None:
    mesh = Mesh((32, 64), ("dp", "tp"))
    shape, step = (4096, 8192), 1 << 30
    for spec in (("tp",), (("dp", "tp"),), ("dp", "tp"), ()):
        (pieces,) = spread(Sharding(mesh, spec), shape, step).values()
        assert len(pieces) == 1
    fused = Sharding(mesh, ("tp",), splits={0: Split(segments=(2048, 1024, 1024))})
    (pieces,) = spread(fused, shape, step).values()
    assert len(pieces) == 2  # the segments of one size are a loop


def test_cut_unevenly_the_ranks_that_hold_as_much_are_a_piece() -> None:
    sharding = Sharding(Mesh(256, "tp"), ("tp",), splits={0: Split(rule="balanced")})
    (pieces,) = spread(sharding, (1000,), 1 << 20).values()
    assert len(pieces) == 2


def _sizes(parts: int, seed: int) -> tuple[int, ...]:
    """Uneven parts of 1,000 elements a rank, on average."""
    cuts = np.random.default_rng(seed).integers(0, 1000 * parts, parts - 1)
    return tuple(np.diff([0, *sorted(cuts.tolist()), 1000 * parts]).tolist())


def test_planning_of_uneven_sizes_grows_with_the_ranks() -> None:
    """Not with their square: a rank gets from a few others."""

    def planned(ranks: int) -> int:
        mesh = Mesh(ranks, "tp")
        src, dst = (Sharding(mesh, ("tp",), splits={0: _sizes(ranks, k)}) for k in range(2))
        with counted() as seen:
            plan = plan_reshard(Layout.identity((1000 * ranks,)), src, dst)
            assert sum(plan.recv_bytes) > 0
            assert plan.rounds
        return seen.total()

    few, many = planned(64), planned(256)
    assert few < many < 6 * few
