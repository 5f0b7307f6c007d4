"""An op on sharded arrays leaves its result where the data falls, and moves only what it may."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
from xlayout.errors import LayoutError, ShapeError, ShardingError
from xlayout.shard import Mesh, Sharding, Split, plan_reshard, wire_bytes
from xlayout.shard.sharded import propagated, run_sharded

W = (32, 8)
TP = Mesh(4, "tp")
ROWS = Sharding(TP, ("tp",))


def mesh(kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("dp", "tp"), (kind, kind))


def put(shape: tuple[int, ...], spec: P, kind: AxisType = AxisType.Auto) -> jax.Array:
    x: jax.Array = jax.device_put(values(shape), NamedSharding(mesh(kind), spec))
    return x


def values(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_data_falls_where_nothing_moves() -> None:
    fused = Sharding(TP, ("tp",), splits={0: Split(segments=2)})
    assert propagated(xl.Layout.permute(W, (1, 0)), [ROWS]) == (Sharding(TP, (None, "tp")),)
    assert propagated(xl.interleave.layout(W), [fused]) == (ROWS,)
    assert propagated(xl.deinterleave.layout(W), [ROWS]) == (fused,)
    assert propagated(xl.interleave.layout((12,)), [ROWS]) is None
    # Copies would have to be made.
    assert propagated(xl.Layout.slice((24, 5), 0, 6), [ROWS]) is None
    qkv = xl.fuse_qkv.layout((16, 2), (8, 2), (8, 2), heads=8, kv_heads=4)
    assert propagated(qkv, [ROWS] * 3) == (ROWS,)


LANDS = {
    "transpose": (xl.Layout.permute(W, (1, 0)), P("dp", "tp"), P("tp", "dp")),
    "stacked halves": (
        xl.interleave.layout(W).regrouped([(2, 16, 8)]), P(None, "tp"), P("tp")),
    "rows that must move": (xl.interleave.layout(W), P("tp"), P("tp")),
}  # fmt: skip


@pytest.mark.parametrize("case", LANDS)
@pytest.mark.parametrize("comm", ["auto", "native"])
def test_the_result_is_right_and_lies_where_it_should(case: str, comm: Any) -> None:
    layout, src, dst = LANDS[case]
    x = put(layout.in_shape, src)
    y = run_sharded(layout, [x], comm=comm)
    np.testing.assert_array_equal(y, layout(values(layout.in_shape)))
    assert y.sharding.is_equivalent_to(NamedSharding(mesh(), dst), y.ndim)


@pytest.mark.parametrize("comm", ["auto", "native"])
def test_the_caller_says_where_the_result_lies(comm: Any) -> None:
    to = NamedSharding(mesh(), P("dp", "tp"))
    y = run_sharded(xl.interleave.layout(W), [put(W, P("tp"))], comm=comm, out_sharding=to)
    np.testing.assert_array_equal(y, xl.interleave(values(W)))
    assert y.sharding.is_equivalent_to(to, 2)


def test_several_results_lie_each_on_its_own() -> None:
    layout = xl.fuse_qkv.layout((16, 2), (8, 2), (8, 2), heads=8, kv_heads=4).inverse()
    x = put((32, 2), P("tp"), AxisType.Explicit)
    q, k, v = run_sharded(layout, [x], comm="local")
    for made, wanted in zip((q, k, v), layout(values((32, 2))), strict=True):
        np.testing.assert_array_equal(made, wanted)
        to = NamedSharding(mesh(AxisType.Explicit), P("tp"))
        assert made.sharding.is_equivalent_to(to, 2)
    assert wire_bytes(lambda x: run_sharded(layout, [x]), x) == {}


def test_local_refuses_to_move_and_names_the_source_that_need_not() -> None:
    x = put(W, P("tp"))
    lies = Sharding.from_jax(x.sharding)
    plan = plan_reshard(xl.interleave.layout(W), lies, lies, itemsize=4)
    said = f"comm: 'local', but something would have to move:\n{plan.explain()}"
    assert "local if it came from (tp, axis 0 by ceil in 2 segments)" in said
    with pytest.raises(ShardingError, match=f"^{re.escape(said)}$"):
        run_sharded(xl.interleave.layout(W), [x], comm="local")


def test_a_fused_weight_cut_as_if_it_were_plain_is_told_so() -> None:
    x = put((12, 8), P("tp"))
    with pytest.raises(ShardingError, match="cannot shard axis 0 = 12 into 4: the cut at 3 fa"):
        run_sharded(xl.interleave.layout((12, 8)), [x], comm="local")


@pytest.mark.parametrize("shape", [(2, 16, 8), (4, 8, 8)])
def test_a_result_with_other_axes_needs_a_place_to_lie(shape: tuple[int, ...]) -> None:
    layout = xl.interleave.layout(W).regrouped(None, [shape])
    with pytest.raises(ShardingError, match=r"out_sharding: the data does not fall into"):
        run_sharded(layout, [put(W, P("tp"))], comm="local")


def test_where_no_place_is_evident_the_framework_chooses() -> None:
    x, plain = put(W, P("tp")), values(W)
    layout = xl.interleave.layout(W).regrouped(None, [(2, 16, 8)])
    made = run_sharded(layout, [x])
    np.testing.assert_array_equal(made, layout(plain))
    assert made.sharding == layout(x).sharding
    np.testing.assert_array_equal(xl.trim(x, to=30), plain[:30])
    np.testing.assert_array_equal(xl.stack([x, put(W, P(None, "tp"))]), np.stack([plain, plain]))


@pytest.mark.parametrize("shapes", [((28, 8), (3, 8)), ((24, 8), (64,))])
def test_one_result_that_cannot_lie_as_the_input_leaves_all_to_the_framework(
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    sizes = [int(np.prod(shape)) for shape in shapes]
    starts = [0, sizes[0]]
    pieces = [xl.Piece(k, k, ((n, 1, 1),)) for k, n in zip(starts, sizes, strict=True)]
    layout = xl.Layout((W,), shapes, pieces)
    for spec in (P("tp"), P(None, "tp")):
        x = put(W, spec)
        for comm in ("auto", "native"):
            for y, wanted in zip(
                run_sharded(layout, [x], comm=comm),  # type: ignore[arg-type]
                layout(values(W)),
                strict=True,
            ):
                np.testing.assert_array_equal(y, wanted)


def test_by_itself_an_op_moves_what_must_move_and_no_more() -> None:
    x = put((48, 8), P("tp"), AxisType.Explicit)
    lies = (Sharding.from_jax(x.sharding),)
    plan = plan_reshard(xl.interleave.layout((48, 8)), lies, lies, itemsize=4)
    moved = wire_bytes(xl.interleave, x)
    assert list(moved) == ["collective_permute"]
    assert 0 < sum(moved.values()) <= 1.1 * max(plan.recv_bytes)
    assert wire_bytes(xl.matrix_transpose, x) == {}
    np.testing.assert_array_equal(xl.interleave(x), xl.interleave(values((48, 8))))


def test_one_device_takes_any_word() -> None:
    x = jax.numpy.asarray(values((8, 2)))
    for comm in ("auto", "local", "native"):
        np.testing.assert_array_equal(xl.interleave(x, comm=comm), xl.interleave(values((8, 2))))
        np.testing.assert_array_equal(
            xl.apply(xl.interleave.layout((8, 2)), x, comm=comm), xl.interleave(values((8, 2)))
        )
    with pytest.raises(LayoutError, match="comm: 'fast'; wanted one of 'auto', 'local', 'native'"):
        xl.interleave(x, comm="fast")  # type: ignore[arg-type]

    def told(x: Any) -> Any:
        return xl.interleave(x, out_sharding=NamedSharding(mesh(), P("tp")))

    for call in (told, lambda x: jax.vjp(told, x)):
        with pytest.raises(TypeError, match=r"^out_sharding: .* is on one device; leave it out"):
            call(x)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_every_op_takes_comm_and_out_sharding(kind: AxisType) -> None:
    x, to = put(W, P("tp"), kind), NamedSharding(mesh(kind), P(None, "tp"))
    plain = values(W)
    for made, wanted in (
        (xl.interleave(x, block=2, comm="auto"), xl.interleave(plain, block=2)),
        (xl.matrix_transpose(x, comm="local"), plain.T),
        (xl.rearrange(x, "(a b) c -> (b a) c", a=4, out_sharding=to),
         xl.rearrange(plain, "(a b) c -> (b a) c", a=4)),
        (xl.pad(x, to=40, value=7, comm="auto"), xl.pad(plain, to=40, value=7)),
        (xl.stack([x, x], comm="auto", out_sharding=NamedSharding(mesh(kind), P(None, "tp"))),
         np.stack([plain, plain])),
    ):  # fmt: skip
        np.testing.assert_array_equal(made, wanted)


def test_an_op_runs_in_jit_on_explicit_axes() -> None:
    x = put(W, P("tp"), AxisType.Explicit)
    made = jax.jit(lambda x: xl.interleave(x, comm="auto"))(x)
    np.testing.assert_array_equal(made, xl.interleave(values(W)))
    assert made.sharding.is_equivalent_to(x.sharding, 2)


@pytest.mark.parametrize("comm", ["auto", "native"])
def test_an_array_on_one_device_is_put_beside_those_on_many(comm: Any) -> None:
    x, alone, to = put(W, P("tp")), jax.numpy.asarray(values(W) + 1), NamedSharding(mesh(), P("dp"))
    for xs in ([x, alone], [alone, x]):
        made = xl.stack(xs, comm=comm, out_sharding=to)
        np.testing.assert_array_equal(made, np.stack([np.asarray(x) for x in xs]))
        assert made.sharding.is_equivalent_to(to, 3)


def test_an_array_on_one_device_is_known_by_its_gradient_too() -> None:
    many, alone = put(W, P("tp")), jax.numpy.asarray(values(W))
    gradient = jax.grad(lambda x: (xl.stack([x, many]) ** 2).sum())
    for x in (alone, values(W)):
        np.testing.assert_array_equal(gradient(x), 2 * values(W))
    with pytest.raises(TypeError, match="arrays: 1 is on many devices, 0 on one; wanted all on"):
        gradient(jax.device_put(alone, jax.devices()[0]))
    to = NamedSharding(mesh(), P("tp"))
    with pytest.raises(TypeError, match=r"out_sharding: .* but the jax array is on one device; l"):
        jax.grad(lambda x: xl.interleave(x, out_sharding=to).sum())(alone)


def test_arrays_do_not_meet_on_meshes_whose_axes_are_in_another_order() -> None:
    devices = np.array(jax.devices()[:4]).reshape(2, 2)
    x, y = (
        jax.device_put(values(W), NamedSharding(jax.sharding.Mesh(devices, names), P("a")))
        for names in (("a", "b"), ("b", "a"))
    )
    said = r"arrays: 0 lies on \(a=2 b=2\) of devices 0 1 2 3, 1 on \(b=2 a=2\) of devices 0 1 2 3;"
    with pytest.raises(ShardingError, match=said):
        xl.stack([x, y])


def test_any_layout_is_applied_as_an_op() -> None:
    x, glu = put(W, P("tp"), AxisType.Explicit), xl.interleave.layout(W)
    to = NamedSharding(mesh(AxisType.Explicit), P(None, "tp"))
    made = xl.apply(glu, x, out_sharding=to)
    np.testing.assert_array_equal(made, xl.interleave(values(W)))
    assert made.sharding.is_equivalent_to(to, 2)
    with pytest.raises(ShardingError, match="comm: 'local', but something would have to move:"):
        xl.apply(glu, x, comm="local")
    with pytest.raises(BufferError, match="copy=False: the result of a sharded op is no view; use"):
        xl.apply(glu, x, copy=False)
    with pytest.raises(LayoutError, match="comm: 'fast'; wanted one of 'auto', 'local', 'native'"):
        xl.apply(glu, x, comm="fast")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a tracer does not know its sharding"):
        jax.jit(lambda x: xl.apply(glu, x, comm="local"))(put(W, P("tp")))
    holes = xl.pad.layout(W, to=40)
    np.testing.assert_array_equal(xl.apply(holes, x, fill=3), xl.apply(holes, values(W), fill=3))
    with pytest.raises(TypeError, match="fill"):
        xl.apply(holes, x, fill="a")
    with pytest.raises(
        ShapeError, match=r"^x: an array of shape \(32, 8\); the layout takes \(8, 8\)$"
    ):
        xl.apply(xl.Layout.identity((8, 8)), x)


def test_fills_that_are_equal_keep_their_signs() -> None:
    x, holes, to = put(W, P("tp")), xl.pad.layout(W, to=40), P("tp")
    for fill in (-0.0, 0.0, 0, -0.0):

        def run(x: Any, fill: float = fill) -> Any:
            return xl.apply(holes, x, fill=fill, in_sharding=to, out_sharding=to)

        part = jax.shard_map(run, mesh=mesh(), in_specs=to, out_specs=to, axis_names={"tp"})
        for made in (xl.apply(holes, x, fill=fill, out_sharding=to), jax.jit(part)(x)):
            assert (np.signbit(np.asarray(made)[32:]) == np.signbit(fill)).all()
        made = xl.apply(holes, put(W, P(None, "tp")), fill=fill, comm="native")
        assert (np.signbit(np.asarray(made)[32:]) == np.signbit(fill)).all()


def test_many_layouts_lie_as_each_alone() -> None:
    x, glu, holes = put(W, P("tp")), xl.interleave.layout(W), xl.pad.layout(W, to=40)
    made = xl.apply_many([glu, holes, glu], [x, x, values(W)], fill=3)
    for y, layout in zip(made, (glu, holes, glu), strict=True):
        np.testing.assert_array_equal(y, xl.apply(layout, values(W), fill=3))
    assert [y.sharding.spec for y in made[:2]] == [P("tp"), P("tp")]
    assert isinstance(made[2], np.ndarray)


def test_memory_is_not_a_question_across_devices() -> None:
    with pytest.raises(BufferError, match="copy=False: the result of a sharded op is no view; use"):
        xl.interleave(put(W, P("tp")), comm="auto", copy=False)


def test_a_way_that_is_not_known_is_refused() -> None:
    with pytest.raises(LayoutError, match="comm: 'fast'; wanted one of 'auto', 'local', 'native'"):
        run_sharded(xl.Layout.identity(W), [put(W, P("tp"))], comm="fast")  # type: ignore[arg-type]


def test_local_refuses_a_sharding_that_names_no_axes() -> None:
    impls = pytest.importorskip("jax._src.sharding_impls")
    client = pytest.importorskip("jax._src.lib").xla_client
    parts = impls.GSPMDSharding(tuple(jax.devices()), client.HloSharding.iota_tile((8, 1)))
    x = jax.device_put(values(W), parts)
    for run in (xl.interleave, lambda x, **how: xl.apply(xl.interleave.layout(W), x, **how)):
        np.testing.assert_array_equal(run(x), xl.interleave(values(W)))
        with pytest.raises(TypeError, match=r"x: sharded by GSPMD.*; wanted a NamedSharding"):
            run(x, comm="local")
