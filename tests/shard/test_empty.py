"""Arrays of no elements or of no axes are planned like any others."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.shard.meshes import check_pullback
from xlayout.algebra import Layout
from xlayout.shard import Mesh, Sharding, Split, plan_reshard
from xlayout.shard.spmd import program

MESH = Mesh((2, 1, 3), ("a", "b", "c"))
SPLITS = (
    Split(), Split(rule="balanced", unit=2), Split(rule="even"), Split(segments=2), Split(pad=True),
    Split(sizes=(0,) * 6), Split(rule="flat_ceil", copies=3),
)  # fmt: skip


@pytest.mark.parametrize("split", SPLITS, ids=repr)
def test_of_no_elements_nothing_moves(split: Split) -> None:
    cut, whole = Sharding(MESH, (None, MESH.names), splits={1: split}), Sharding(MESH, ())
    flat = Sharding(MESH, [MESH.names], splits={0: split}, flat=True)
    layout = Layout.identity((4, 0))
    for src, dst in itertools.permutations((cut, whole, flat), 2):
        plan = plan_reshard(layout, src, dst)
        assert plan.is_local
        assert plan.messages == plan.rounds == ()
        assert plan.recv_bytes == plan.lower_bound == (0,) * 6
        assert "local: every rank has what it needs" in plan.explain()
        assert plan.simulate(np.ones((4, 0))).shape == (4, 0)
        assert program(plan).pack is None
        check_pullback(plan)


def test_an_array_of_no_axes_is_on_every_rank_or_flat_on_one() -> None:
    whole, flat = Sharding(MESH, ()), Sharding(MESH, [MESH.names], flat=True)
    assert [flat.local_shape(rank, ()) for rank in range(6)] == [(1,)] + [(0,)] * 5
    layout = Layout.identity(())
    for src, dst in itertools.product((whole, flat), repeat=2):
        plan = plan_reshard(layout, src, dst)
        assert plan.recv_bytes == ((0,) + (1,) * 5 if (src, dst) == (flat, whole) else (0,) * 6)
        assert plan.simulate(np.array(7)) == 7
        check_pullback(plan)
