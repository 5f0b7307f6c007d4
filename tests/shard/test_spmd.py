"""The program that all ranks run gives each rank its part, as one collective or in rounds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

import xlayout as xl
from tests.shard.test_plan import array, expected, plans, stores
from xlayout.shard import Mesh, Plan, Sharding, plan_reshard
from xlayout.shard.spmd import Program, program


def exchanged(plan: Plan, run: Program, buffers: list[np.ndarray]) -> list[np.ndarray]:
    """What each rank receives, worked out by hand."""
    if run.collective is None:
        received = [np.full_like(buffer, -7) for buffer in buffers]
        start = 0
        for width, pairs in run.rounds:
            for src, dst in pairs:
                received[dst][start : start + width] = buffers[src][start : start + width]
            start += width
        return received
    kind, names = run.collective
    mesh = plan.src[0].mesh
    along = [mesh.axis(name) for name in names]
    apart = [axis for axis in range(len(mesh.shape)) if axis not in along]
    received = []
    for rank in range(plan.ranks):
        mine = [mesh.coordinates(rank)[axis] for axis in apart]
        group = [
            other
            for other in range(plan.ranks)
            if [mesh.coordinates(other)[axis] for axis in apart] == mine
        ]
        if kind == "all_gather":
            received.append(np.concatenate([buffers[other] for other in group]))
        else:
            place = group.index(rank)
            parts = [np.split(buffers[other], len(group))[place] for other in group]
            received.append(np.concatenate(parts))
    return received


@settings(max_examples=200)
@given(plans())
def test_each_rank_gets_its_part(plan: Plan) -> None:
    run, x = program(plan), array(plan)
    own = [stores(plan, x, rank) for rank in range(plan.ranks)]
    if run.pack is None:
        made = [unpack(part) for unpack, part in zip(run.unpack, own, strict=True)]
    else:
        buffers = [pack(part) for pack, part in zip(run.pack, own, strict=True)]
        boxes = exchanged(plan, run, buffers)
        made = [unpack(*args) for unpack, *args in zip(run.unpack, boxes, own, strict=True)]
    for rank, part in enumerate(made):
        np.testing.assert_array_equal(part, expected(plan, x, rank))


@given(plans())
def test_a_collective_carries_what_is_needed_and_no_more(plan: Plan) -> None:
    if plan.collective is not None:
        others = len(plan.collective.groups[0]) - 1
        assert [4 * others * plan.collective.width] * plan.ranks == list(plan.recv_bytes)


def test_what_one_rank_lacks_is_no_collective() -> None:
    """Only three of the four ranks have something for all others."""
    mesh = Mesh(4, "tp")
    pieces = tuple(
        xl.Piece(4 * src + dst, 4 * dst + src) for src in range(4) for dst in range(4) if src
    )
    layout = xl.Layout(((16,),), ((16,),), pieces)
    rows = Sharding(mesh, ("tp",))
    assert plan_reshard(layout, rows, rows).collective is None
    whole = xl.Layout.permute((4, 4), (1, 0)).regrouped([(16,)], [(16,)])
    found = plan_reshard(whole, rows, rows).collective
    assert found is not None
    assert (found.kind, found.width) == ("all_to_all", 1)


def test_a_gather_is_of_what_all_ranks_send_to_everyone() -> None:
    """The first of three sends the same to both others, and they do not."""
    rows = Sharding(Mesh(3, "tp"), ("tp",))
    wanted = [0, 2, 4, 0, 2, 5, 0, 3, 4]
    pieces = tuple(xl.Piece(source, at) for at, source in enumerate(wanted))
    plan = plan_reshard(xl.Layout(((6,),), ((9,),), pieces), rows, rows)
    assert plan.collective is not None
    assert (plan.collective.kind, plan.collective.width) == ("all_to_all", 1)
