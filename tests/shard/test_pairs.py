"""Parts that overlap partly, such as uneven key-value heads: a rank gets each element once."""

from __future__ import annotations

import math
import random

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.counted import counted
from tests.shard.meshes import MESHES, bound, shardings
from tests.strategies import bijections, stretches
from xlayout.algebra import Layout
from xlayout.shard import Mesh, Plan, Sharding, Split, plan_reshard
from xlayout.shard.spread import has_owners


@st.composite
def overlapping(draw: DrawFn, mesh: Mesh, n: int) -> Sharding:
    """A fused axis of segments that are held by groups of ranks, none of them cut evenly."""
    names = draw(st.permutations(mesh.names))[: draw(st.integers(1, len(mesh.names)))]
    ranks = math.prod(mesh.shape[mesh.axis(name)] for name in names)
    segments = draw(stretches(n, most=3))
    groups = st.sampled_from([d for d in range(1, ranks + 1) if ranks % d == 0])
    split = Split(
        rule=draw(st.sampled_from(["ceil", "balanced"])),
        segments=tuple(segments),
        copies=tuple(draw(groups) for _ in segments),
    )
    sharding = Sharding(mesh, (names,), splits={0: split})
    assume(not has_owners(sharding, (n,)))
    return sharding


@st.composite
def plans(draw: DrawFn) -> Plan:
    mesh, n = draw(st.sampled_from(MESHES[1:])), draw(st.integers(3, 24))
    src = draw(overlapping(mesh, n))
    layout = draw(bijections(n)).regrouped([(n,)])
    return plan_reshard(layout, src, draw(shardings(mesh, layout.out_shape)))


@given(plans())
def test_a_plan_moves_the_lower_bound_and_gives_the_result(plan: Plan) -> None:
    x = np.arange(plan.layout.in_size)
    np.testing.assert_array_equal(plan.simulate(x), plan.layout(x))
    wanted = tuple(bound(plan.layout, plan.src[0], plan.dst[0]))
    assert plan.recv_bytes == plan.lower_bound == wanted


@given(plans())
def test_a_message_is_the_same_to_sender_and_receiver(plan: Plan) -> None:
    sent = {(m.src, m.dst): m.block.pieces for r in range(plan.ranks) for m in plan.sent(r)}
    assert sent == {(m.src, m.dst): m.block.pieces for m in plan.messages}


def test_uneven_cuts_across_one_another_are_soon_found_pair_by_pair() -> None:
    """Counted, not timed: with the pieces between all ranks at once it would be 19 million."""
    sizes = random.Random(0).choices(range(3, 20), k=256)
    n, mesh = sum(sizes), Mesh(256, "tp")
    rows, columns = (
        Sharding(mesh, spec, splits={len(spec) - 1: sizes}) for spec in (("tp",), (None, "tp"))
    )
    plan = plan_reshard(Layout.identity((n, n)), rows, columns)
    with counted() as seen:
        part = plan.part(3)
    assert seen["call"] < 4_000_000
    assert part.receives == tuple(sizes[3] * size * (k != 3) for k, size in enumerate(sizes))
