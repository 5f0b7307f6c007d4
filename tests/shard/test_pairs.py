"""Parts that overlap partly, such as uneven key-value heads: a rank gets each element once."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.shard.meshes import MESHES, bound, shardings
from tests.strategies import bijections, stretches
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
