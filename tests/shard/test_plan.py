"""A plan moves what must move and nothing else, and its messages, run by hand, give the result."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import xlayout as xl
from tests.counted import counted
from tests.shard.meshes import MESHES, bound, check_pullback, needs, positions, shardings
from tests.strategies import layouts
from xlayout.errors import ShapeError, SizeError
from xlayout.shard import Mesh, Plan, Sharding, Split, plan_reshard
from xlayout.shard.message import _form, _settled, packed
from xlayout.shard.split import _edges, _runs
from xlayout.shard.spread import spread as _spread

TP = Mesh(4, "tp")
ROWS, COLUMNS = Sharding(TP, ("tp",)), Sharding(TP, (None, "tp"))


@st.composite
def plans(draw: DrawFn) -> Plan:
    layout = draw(layouts(max_size=60))
    mesh = draw(st.sampled_from(MESHES))
    src = draw(shardings(mesh, layout.in_shape))
    return plan_reshard(layout, src, draw(shardings(mesh, layout.out_shape)), itemsize=4)


def stores(plan: Plan, x: np.ndarray, rank: int) -> np.ndarray:
    """What a rank holds before, with noise where its part is padded."""
    (sharding,) = plan.src
    at = positions(sharding, rank, x.shape)
    return np.where(at < 0, 777, x.ravel()[np.maximum(at, 0)] if x.size else at)


def expected(plan: Plan, x: np.ndarray, rank: int) -> np.ndarray:
    """What a rank must hold after, by index arrays."""
    (sharding,) = plan.dst
    at = needs(plan.layout, positions(sharding, rank, plan.layout.out_shape))
    return np.where(at < 0, 0, x.ravel()[np.maximum(at, 0)] if x.size else at)


def array(plan: Plan) -> np.ndarray:
    return np.arange(1, plan.layout.in_size + 1).reshape(plan.layout.in_shape)


@settings(max_examples=400)
@given(plans())
def test_a_plan_moves_the_lower_bound_and_gives_the_result(plan: Plan) -> None:
    wanted = tuple(4 * n for n in bound(plan.layout, plan.src[0], plan.dst[0]))
    assert plan.recv_bytes == plan.lower_bound == wanted
    assert plan.is_local == (sum(wanted) == 0)
    x = array(plan)
    everyone = range(plan.ranks)
    for rank in everyone:
        local = np.zeros(plan.dst[0].local_shape(rank, plan.layout.out_shape), x.dtype)
        for m in plan.messages:
            if m.dst == rank:
                table = m.block.index().reshape(local.shape)
                sent = stores(plan, x, m.src).ravel()
                local = np.where(table < 0, local, sent[np.maximum(table, 0)] if sent.size else 0)
        np.testing.assert_array_equal(local, expected(plan, x, rank))


@given(plans())
def test_the_parts_of_all_ranks_run_together_give_the_result(plan: Plan) -> None:
    x = array(plan)
    buffers = []
    for rank in range(plan.ranks):
        part = plan.part(rank)
        buffer = part.pack(stores(plan, x, rank))
        buffers.append(np.split(buffer, np.cumsum(part.sends)[:-1]))
    for rank in range(plan.ranks):
        part = plan.part(rank)
        inbox = [buffers[src][rank] for src in range(plan.ranks)]
        assert tuple(map(len, inbox)) == part.receives
        made = part.unpack(np.concatenate(inbox), stores(plan, x, rank))
        np.testing.assert_array_equal(made, expected(plan, x, rank))


@given(plans())
def test_simulate_equals_the_op_on_one_device(plan: Plan) -> None:
    x = array(plan)
    np.testing.assert_array_equal(plan.simulate(x), plan.layout(x))


@given(plans())
def test_a_message_is_the_same_to_sender_and_receiver(plan: Plan) -> None:
    sent = [m for rank in range(plan.ranks) for m in plan.sent(rank)]
    assert {(m.src, m.dst): m.block.pieces for m in sent} == {
        (m.src, m.dst): m.block.pieces for m in plan.messages
    }
    assert len(sent) == len(plan.messages)
    for m in plan.messages:
        assert m.pack >> m.unpack == m.block


def test_equal_blocks_cut_differently_keep_their_own_order_on_the_wire() -> None:
    one = xl.Layout(((3,),), ((3,),), (xl.Piece(0, 0, ((2, 1, 2),)), xl.Piece(2, 1)))
    other = xl.Layout._of((one.in_shapes, one.out_shapes, tuple(reversed(one.pieces))))
    assert one == other
    for block in (one, other):
        pack, unpack = packed(block)
        assert pack.index()[0] == block.pieces[0].in_offset
        assert pack >> unpack == block


@given(plans())
def test_rounds_are_permutations_that_carry_every_message_once(plan: Plan) -> None:
    carried: dict[tuple[int, int], list[int]] = {}
    for step in plan.rounds:
        senders = [t.message.src for t in step.transfers]
        receivers = [t.message.dst for t in step.transfers]
        assert len(set(senders)) == len(senders)
        assert len(set(receivers)) == len(receivers)
        for t in step.transfers:
            assert 0 < t.last - t.first <= step.width
            carried.setdefault((t.message.src, t.message.dst), []).extend(range(t.first, t.last))
    for m in plan.messages:
        if m.is_remote:
            assert sorted(carried.pop((m.src, m.dst))) == list(range(m.elements))
    assert carried == {}


@given(plans())
def test_a_plan_explains_itself(plan: Plan) -> None:
    text = plan.explain()
    assert str(plan) == text
    assert ("local: every rank has what it needs" in text) == plan.is_local


@given(plans())
def test_what_pulls_back_is_local(plan: Plan) -> None:
    check_pullback(plan)


def test_copies_are_read_where_they_are_first() -> None:
    mesh = Mesh((2, 4), ("dp", "tp"))
    plan = plan_reshard(
        xl.Layout.identity((8, 8)), Sharding(mesh, ("tp",)), Sharding(mesh, (None, "tp"))
    )
    assert all(mesh.coordinates(m.src)[0] == mesh.coordinates(m.dst)[0] for m in plan.messages)


def test_senders_of_copies_share_the_work() -> None:
    mesh = Mesh((2, 2), ("dp", "tp"))
    source = Sharding(mesh, ("tp",))
    plan = plan_reshard(xl.Layout.identity((8, 8)), source, Sharding(mesh, ()))
    sent = [sum(m.elements for m in plan.sent(r) if m.is_remote) for r in range(4)]
    assert sent == [32, 32, 32, 32]


def test_keys_and_values_on_more_ranks_than_heads() -> None:
    mesh = Mesh(8, "tp")
    fused = Split(segments=(16, 4, 4), copies=(1, 4, 4))
    assert Sharding(mesh, ("tp",), splits={0: fused}).owned(5, (24,)) == (
        (range(10, 12), range(18, 20), range(22, 24)),
    )
    layout = xl.Layout.identity((24, 3))
    fused_rows = Sharding(mesh, ("tp",), splits={0: fused})
    for src, dst in itertools.permutations((fused_rows, Sharding(mesh, ("tp",)))):
        plan = plan_reshard(layout, src, dst)
        assert plan.recv_bytes == tuple(bound(layout, src, dst))


def test_flat_shards_with_padding_to_rows_and_back() -> None:
    mesh = Mesh(8, "dp")
    zero3 = Sharding(mesh, ("dp",), flat=True, splits={0: Split(rule="flat_ceil", pad=True)})
    assert {zero3.local_shape(r, (50, 33)) for r in range(8)} == {(207,)}
    rows = Sharding(mesh, ("dp",))
    for src, dst in itertools.permutations((zero3, rows)):
        layout = xl.Layout.identity((50, 33))
        assert plan_reshard(layout, src, dst).recv_bytes == tuple(bound(layout, src, dst))


def test_a_broadcast_travels_once() -> None:
    tile = xl.Layout(((8,),), ((2, 8),), (xl.Piece(0, 0, ((2, 0, 8), (8, 1, 1))),))
    plan = plan_reshard(tile, ROWS, COLUMNS)
    assert plan.is_local
    plan = plan_reshard(tile, ROWS, Sharding(TP, ()))
    assert plan.recv_bytes == plan.lower_bound == (6, 6, 6, 6)


def test_receivers_may_want_the_same_rows_at_other_distances() -> None:
    """Overlapping messages at equal distances do not form a loop."""
    mesh = Mesh(6, "tp")
    pieces = tuple(xl.Piece(2 * k, 4 * k, ((4, 8, 1),)) for k in range(6))
    layout = xl.Layout(((35,),), ((6, 4),), pieces)
    src = Sharding(mesh, ("tp",), splits={0: Split(sizes=(35, 0, 0, 0, 0, 0))})
    plan = plan_reshard(layout, src, Sharding(mesh, ("tp",)))
    wanted = np.arange(2, 12, 2)[:, None] + np.arange(0, 32, 8)
    np.testing.assert_array_equal(plan.part(0).pack(np.arange(35)), wanted.ravel())


BIG = (57344, 8192)
MANY = Mesh(256, "tp")
GRID = Mesh((32, 8), ("dp", "tp"))
CUT = Sharding(MANY, ("tp",))
OF_256 = {
    "interleave": (xl.interleave.layout(BIG, block=1), CUT, CUT),
    "transpose": (xl.Layout.permute(BIG, (1, 0)), CUT, CUT),
    "rows to columns": (xl.Layout.identity(BIG), CUT, Sharding(MANY, (None, "tp"))),
    "rows to everyone": (xl.Layout.identity(BIG), CUT, Sharding(MANY, ())),
    "the other order of two axes": (
        xl.Layout.identity(BIG),
        Sharding(GRID, [("tp", "dp")]), Sharding(GRID, [("dp", "tp")])),
    "uneven": (xl.Layout.identity((1000, 999)), CUT, Sharding(MANY, (None, "tp"))),
    "flat to rows": (
        xl.Layout.identity((57345, 8191)), Sharding(MANY, ("tp",), flat=True, splits={
            0: Split(rule="flat_ceil", pad=True)}), CUT),
    "eight key-value heads": (
        xl.Layout.identity((18432, 8192)), Sharding(MANY, ("tp",), splits={
            0: Split(segments=(16384, 1024, 1024), copies=(1, 32, 32))}), CUT),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_256)
def test_the_part_of_one_rank_of_256_takes_few_steps(case: str) -> None:
    """Counted, not timed; block by block it would be half a million."""
    for cached in (_spread, _form, _settled, _edges, _runs):
        cached.cache_clear()
    with counted() as seen:
        part = plan_reshard(*OF_256[case], itemsize=7).part(3)
    assert seen["call"] < 100_000
    assert sum(part.receives) > 0


def test_a_plan_is_remembered() -> None:
    layout = xl.Layout.identity((8, 8))
    assert plan_reshard(layout, ROWS, COLUMNS) is plan_reshard(layout, ROWS, COLUMNS)


def test_a_cut_inside_a_factor_names_the_factor_and_the_clean_cuts() -> None:
    tp = Sharding(Mesh(2, "tp"), ("tp",))
    plan = plan_reshard(xl.interleave.layout((6,)), tp, tp)
    message = r"cannot shard axis 0 = 6 into 2: the cut at 3 falls inside a factor of 2 \(of 3 x 2"
    with pytest.raises(SizeError, match=rf"{message}\)\. Clean cuts: 1, 3, 6;"):
        plan.pullback()
    assert "never local to that result: cannot shard" in plan.explain()


def test_a_diagonal_has_no_local_source() -> None:
    diagonal = xl.Layout(((4, 4),), ((4,),), (xl.Piece(0, 0, ((4, 5, 1),)),))
    plan = plan_reshard(diagonal, ROWS, ROWS)
    assert plan.is_local
    with pytest.raises(SizeError, match=r"pullback: no sharding of \(\(4, 4\),\) gives every rank"):
        plan.pullback()


@pytest.mark.parametrize("n", [1 << 15, 10**10])
def test_a_source_of_many_stretches_is_soon_found_or_left(n: int) -> None:
    rows = Sharding(Mesh(2, "tp"), ("tp",))
    said = plan_reshard(xl.deinterleave.layout((n,)), rows, rows).explain()
    assert said.endswith(("in 16384 segments) on tp=2", "needs 5000000000 stretches of axis 0 = "
                          f"{n}, no more than 65536 are looked at; leave the source whole, or let "
                          "it communicate"))  # fmt: skip


def test_meshes_of_different_sizes_are_refused() -> None:
    other = Sharding(Mesh(2, "tp"), ("tp",))
    with pytest.raises(SizeError, match=r"meshes \(tp=2\) of 2, \(tp=4\) of 4 ranks; wanted"):
        plan_reshard(xl.Layout.identity((8,)), ROWS, other)


def test_a_rank_that_is_not_there_has_no_part() -> None:
    plan = plan_reshard(xl.Layout.identity((8,)), ROWS, Sharding(ROWS.mesh, ()))
    with pytest.raises(SizeError, match=r"rank: 4; the mesh \(tp=4\) has ranks 0 to 3"):
        plan.part(4)


def test_too_few_shardings_are_refused() -> None:
    layout = xl.fuse_qkv.layout((8,), (8,), (8,), heads=2, kv_heads=2)
    with pytest.raises(ShapeError, match="src: 2 shardings for 3 arrays"):
        plan_reshard(layout, (ROWS, ROWS), ROWS)


def test_wrong_types_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^layout: an int; wanted a Layout: plan_reshard\("):
        plan_reshard(3, ROWS, ROWS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"dst: 'tp'; wanted a Sharding"):
        plan_reshard(xl.Layout.identity((8,)), ROWS, ("tp",))  # type: ignore[arg-type]
