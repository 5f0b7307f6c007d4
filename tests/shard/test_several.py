"""A layout between several arrays, each under a sharding of its own, is one plan."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.shard.meshes import MESHES, check_pullback, positions, shardings
from tests.shard.test_spmd import exchanged
from tests.strategies import patchworks, several
from xlayout.shard import Plan, Sharding, plan_reshard
from xlayout.shard.spmd import program

Shapes = tuple[tuple[int, ...], ...]


@st.composite
def plans(draw: DrawFn) -> Plan:
    layout = draw(st.one_of(several(max_size=60), patchworks()))
    mesh = draw(st.sampled_from(MESHES))
    src, dst = (
        tuple(draw(shardings(mesh, shape)) for shape in shapes)
        for shapes in (layout.in_shapes, layout.out_shapes)
    )
    return plan_reshard(layout, src, dst, itemsize=4)


def flat(side: tuple[Sharding, ...], shapes: Shapes, rank: int) -> list[np.ndarray]:
    """The positions, counted through all arrays, of what a rank stores; -1 for padding."""
    found, first = [], 0
    for sharding, shape in zip(side, shapes, strict=True):
        at = positions(sharding, rank, shape)
        found.append(np.where(at < 0, -1, at + first))
        first += int(np.prod(shape))
    return found


def chosen(values: np.ndarray, at: np.ndarray, padding: int) -> np.ndarray:
    return np.where(at < 0, padding, values[at]) if values.size else np.full(at.shape, padding)


@settings(max_examples=150)
@given(plans())
def test_every_rank_gets_its_parts_of_all_results(plan: Plan) -> None:
    layout, ranks = plan.layout, range(plan.ranks)
    x = np.arange(1, layout.in_size + 1)
    held = [flat(plan.src, layout.in_shapes, rank) for rank in ranks]
    stores = [[chosen(x, at, 777) for at in parts] for parts in held]
    wanted = [
        [chosen(layout.index(), at, -1) for at in flat(plan.dst, layout.out_shapes, rank)]
        for rank in ranks
    ]
    needs = [{k for part in wanted[r] for k in part.flat} - {-1} for r in ranks]
    lacks = [needs[r].difference(*(at.flat for at in held[r])) for r in ranks]
    assert plan.recv_bytes == plan.lower_bound == tuple(4 * len(found) for found in lacks)
    parts = [plan.part(rank) for rank in ranks]
    packed = [part.pack(*own) for part, own in zip(parts, stores, strict=True)]
    wires = [np.split(packed[rank], np.cumsum(parts[rank].sends)[:-1]) for rank in ranks]
    run = program(plan)
    packs = run.pack or ()
    boxes = exchanged(plan, run, [pack(*own) for pack, own in zip(packs, stores, strict=False)])
    for rank in ranks:
        inbox = np.concatenate([wires[src][rank] for src in ranks])
        by_part = parts[rank].unpack(inbox, *stores[rank])
        by_program = run.unpack[rank](*boxes[rank : rank + 1], *stores[rank])
        for made in (by_part, by_program):
            results = made if isinstance(made, tuple) else (made,)
            for result, at in zip(results, wanted[rank], strict=True):
                np.testing.assert_array_equal(result, chosen(x, at, 0))


@settings(max_examples=150)
@given(plans())
def test_a_message_is_the_same_to_sender_and_receiver(plan: Plan) -> None:
    sent = {(m.src, m.dst): m.block.pieces for r in range(plan.ranks) for m in plan.sent(r)}
    assert sent == {(m.src, m.dst): m.block.pieces for m in plan.messages}


@given(plans())
def test_what_pulls_back_is_local(plan: Plan) -> None:
    check_pullback(plan)
