"""Plans between even cuts, many of which are one all-gather or one all-to-all among some ranks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.counted import counted
from tests.shard.test_plan import array, expected, stores
from tests.shard.test_spmd import exchanged
from xlayout.algebra import Layout
from xlayout.shard import Mesh, Plan, Sharding, plan_reshard
from xlayout.shard.spmd import program

MESHES = (
    Mesh(2, "a"), Mesh(3, "a"), Mesh(4, "a"), Mesh((2, 2), ("a", "b")), Mesh((2, 3), ("a", "b")),
    Mesh((1, 3), ("a", "b")), Mesh((2, 1, 2), ("a", "b", "c")), Mesh((2, 3, 2), ("a", "b", "c")),
)  # fmt: skip


@st.composite
def specs(draw: DrawFn, mesh: Mesh, axes: int) -> Sharding:
    spec: list[list[str]] = [[] for _ in range(axes)]
    for name in draw(st.permutations(mesh.names)):
        place = draw(st.integers(-1, axes - 1))
        if place >= 0:
            spec[place].append(name)
    return Sharding(mesh, spec)


@st.composite
def plans(draw: DrawFn) -> Plan:
    """An array is transposed or not, and each axis is cut by some mesh axes."""
    mesh = draw(st.sampled_from(MESHES))
    shape = (12, 12)
    layout = draw(st.sampled_from([Layout.identity(shape), Layout.permute(shape, (1, 0))]))
    return plan_reshard(layout, draw(specs(mesh, 2)), draw(specs(mesh, 2)), itemsize=4)


def made(plan: Plan) -> list[np.ndarray]:
    """What each rank makes by the program for all of them."""
    run, x = program(plan), array(plan)
    own = [stores(plan, x, rank) for rank in range(plan.ranks)]
    if run.pack is None:
        return [unpack(part) for unpack, part in zip(run.unpack, own, strict=True)]
    buffers = [pack(part) for pack, part in zip(run.pack, own, strict=True)]
    boxes = exchanged(plan, run, buffers)
    return [unpack(*args) for unpack, *args in zip(run.unpack, boxes, own, strict=True)]


@settings(max_examples=150)
@given(plans())
def test_each_rank_gets_its_part(plan: Plan) -> None:
    for rank, part in enumerate(made(plan)):
        np.testing.assert_array_equal(part, expected(plan, array(plan), rank))


def among(mesh: Mesh, axes: Sequence[int]) -> set[tuple[int, int]]:
    """All two ranks that differ along these mesh axes alone."""
    at = [np.delete(mesh.coordinates(rank), axes).tolist() for rank in range(mesh.size)]
    return {(a, b) for a, b in itertools.permutations(range(mesh.size), 2) if at[a] == at[b]}


@given(plans())
def test_it_is_one_collective_where_groups_along_mesh_axes_send_each_other_as_much(
    plan: Plan,
) -> None:
    mesh = plan.src[0].mesh
    remote = {(m.src, m.dst): m for m in plan.messages if m.is_remote}
    sizes = {m.elements for m in remote.values()}
    numbers = range(len(mesh.shape))
    some = [axes for k in numbers for axes in itertools.combinations(numbers, k + 1)]
    found = plan.collective
    assert (found is not None) == (
        len(sizes) == 1 and any(among(mesh, axes) == {*remote} for axes in some)
    )
    if found is None:
        return
    assert (among(mesh, found.axes), {found.width}) == ({*remote}, sizes)
    if found.kind == "all_gather":  # everyone sends all others the same
        for rank in range(plan.ranks):
            assert len({m.pack for (src, _), m in remote.items() if src == rank}) == 1


def test_one_collective_among_many_ranks_takes_few_steps() -> None:
    """Tens for each two ranks; as objects with layouts of their own they took hundreds."""
    ranks = 64
    rows, columns = (Sharding(Mesh(ranks, "a"), spec) for spec in (["a"], [None, "a"]))
    with counted() as seen:
        plan = plan_reshard(Layout.identity((128, 128)), rows, columns)
        assert "in one all_to_all among 64 ranks" in plan.explain()
        program(plan)
    assert seen["call"] < 50 * ranks**2
