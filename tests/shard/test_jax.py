"""Resharding and gathering on eight host devices: right values, few bytes, gradients that flow."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
from xlayout.errors import AxisError, ShapeError, ShardingError
from xlayout.shard import Mesh, Sharding, Split, wire_bytes
from xlayout.shard.execute import all_gather, reshard

SHAPE = (48, 8)


def mesh(kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("dp", "tp"), (kind, kind))


def put(x: Any, spec: P, on: jax.sharding.Mesh | None = None) -> jax.Array:
    made: jax.Array = jax.device_put(x, NamedSharding(on or mesh(), spec))
    return made


def values(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def moved(spec: P, fn: Any) -> int:
    """Bytes that all devices together receive in the compiled program."""
    return 8 * sum(wire_bytes(fn, put(values(), spec, mesh(AxisType.Explicit))).values())


LAYOUTS = {
    "identity": xl.Layout.identity(SHAPE),
    "interleave": xl.interleave.layout(SHAPE, block=2),
    "six blocks": xl.interleave.layout(SHAPE, block=8),
    "transpose": xl.Layout.permute(SHAPE, (1, 0)),
    "rope": xl.rope_halves.layout(SHAPE, heads=6),
}
TP, COLUMNS = P("tp"), P(None, "tp")
CASES = [*((name, TP, COLUMNS) for name in LAYOUTS), ("rope", P("dp", "tp"), P("tp", "dp")),
         ("identity", P(("tp", "dp")), P("dp")), ("six blocks", P(), TP),
         ("transpose", TP, P())]  # fmt: skip


@pytest.mark.parametrize(("layout", "src", "dst"), CASES, ids=str)
def test_values_and_bytes_are_those_of_the_plan(layout: str, src: P, dst: P) -> None:
    x, rule = put(values(), src), LAYOUTS[layout]
    to = NamedSharding(mesh(), dst)
    y = reshard(x, to, layout=rule)
    assert y.sharding == to
    np.testing.assert_array_equal(np.asarray(y), rule(values()))
    plan = xl.plan_reshard(rule, Sharding.from_jax(x.sharding), Sharding.from_jax(to), itemsize=4)
    padded = 0 if plan.collective else sum(r.padding for r in plan.rounds) * 4
    explicit = NamedSharding(mesh(AxisType.Explicit), dst)
    found = moved(src, lambda x: reshard(x, explicit, layout=rule))
    assert found == sum(plan.recv_bytes) + padded
    assert padded <= 0.1 * found


def test_gradients_go_back_along_the_inverse() -> None:
    x, rule = put(values(), P("tp")), LAYOUTS["rope"]
    weights = values()[::-1].copy()
    to = NamedSharding(mesh(), P(None, "tp"))

    def loss(x: jax.Array) -> jax.Array:
        return (reshard(x, to, layout=rule) ** 2 * weights).sum()

    g = jax.grad(loss)(x)
    assert g.sharding.is_equivalent_to(x.sharding, 2)
    np.testing.assert_allclose(g, rule.inverse()(2 * rule(values()) * weights), rtol=1e-6)
    _, tangent = jax.jvp(lambda x: reshard(x, to, layout=rule), (x,), (x,))
    np.testing.assert_array_equal(tangent, rule(values()))


def test_it_runs_inside_jit_on_explicit_axes() -> None:
    with jax.set_mesh(mesh(AxisType.Explicit)) as _:
        x = put(values(), P("tp"), jax.sharding.get_mesh())
        y = jax.jit(
            lambda x: reshard(x, NamedSharding(jax.typeof(x).sharding.mesh, P(None, "tp")))
        )(x)
        np.testing.assert_array_equal(y, values())
        assert y.sharding.spec == P(None, "tp")


def test_several_arrays_in_one_exchange() -> None:
    q, k, v = values((32, 8)), values((16, 8)) + 1000, values((16, 8)) + 2000
    rule = xl.fuse_qkv.layout(q.shape, k.shape, v.shape, heads=8, kv_heads=4)
    arrays = tuple(put(a, P("tp")) for a in (q, k, v))
    y = reshard(arrays, NamedSharding(mesh(), P("tp")), layout=rule)
    np.testing.assert_array_equal(y, xl.fuse_qkv(q, k, v, heads=8, kv_heads=4))
    back = reshard(y, NamedSharding(mesh(), P("tp")), layout=rule.inverse())
    for made, a in zip(back, (q, k, v), strict=True):
        np.testing.assert_array_equal(made, a)


def test_a_narrow_dtype_travels_narrow() -> None:
    on = NamedSharding(mesh(AxisType.Explicit), P(None, "tp"))
    wide = moved(P("tp"), lambda x: reshard(x, on))
    assert moved(P("tp"), lambda x: reshard(x, on, dtype="bfloat16")) * 2 == wide
    assert moved(P("tp"), lambda x: reshard(x, on, dtype="float8_e4m3fn")) * 4 == wide
    x, to = put(values(), P("tp")), NamedSharding(mesh(), P(None, "tp"))
    np.testing.assert_array_equal(reshard(x, to, dtype="bfloat16"), values().astype(jnp.bfloat16))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_gather_casts_first(dtype: str, kind: AxisType) -> None:
    w = put(values(), P("dp", "tp"), mesh(kind))
    full = all_gather(w, mesh_axis="dp", dtype=dtype)
    assert full.sharding.spec == P(None, "tp")
    expected = values().astype(dtype)
    assert np.asarray(full).tobytes() == expected.tobytes()
    whole = all_gather(w, mesh_axis=("dp", "tp"), dtype=dtype)
    assert whole.sharding.is_fully_replicated
    assert np.asarray(whole).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("dtype", "wire"), [("float32", "f32"), ("bfloat16", "u16"), ("float8_e4m3fn", "u8")]
)
def test_a_gather_travels_narrow(dtype: str, wire: str) -> None:
    w = put(values(), P("dp", "tp"), mesh(AxisType.Explicit))
    text = jax.jit(lambda w: all_gather(w, dtype=dtype)).lower(w).compile().as_text()
    assert set(re.findall(r"= (\w+)\[[\d,]*\]\S* all-gather\(", text)) == {wire}


def test_the_gradient_of_a_gather_comes_back_wide_and_in_shards() -> None:
    w = put(values(), P("tp"))
    g = jax.grad(lambda w: (all_gather(w, dtype="bfloat16").astype("float32") ** 2).sum())(w)
    assert g.dtype == w.dtype
    assert g.sharding.is_equivalent_to(w.sharding, 2)
    np.testing.assert_allclose(g, 2 * values().astype(jnp.bfloat16).astype(np.float32), rtol=1e-2)


# -- refusals --------------------------------------------------------------------------------------


def test_an_axis_that_does_not_divide_is_refused() -> None:
    with pytest.raises(
        ShardingError, match=r"in JAX, which holds equal parts only; these are .*pad"
    ):
        reshard(put(values((10, 8)), P()), Sharding(Mesh((2, 4), ("dp", "tp")), ("tp",)))


def test_a_fused_weight_is_offered_the_view_that_jax_can_say() -> None:
    fused = Sharding(Mesh((2, 4), ("dp", "tp")), ("tp",), splits={0: Split(segments=2)})
    with pytest.raises(ShardingError, match=r"P\(None, 'tp'\) of the axis seen as \(2, n / 2\)"):
        reshard(put(values(), P("tp")), fused)


def test_an_array_on_one_device_is_refused() -> None:
    with pytest.raises(TypeError, match="wanted a NamedSharding, which names its axes"):
        reshard(jnp.ones(8), NamedSharding(mesh(), P("tp")))
    text = r"^x: a numpy\.ndarray is on one device; wanted a DTensor or a jax"
    with pytest.raises(TypeError, match=text):
        reshard(values(), NamedSharding(mesh(), P("tp")))
    with pytest.raises(TypeError, match=text):
        all_gather(values())


@pytest.mark.parametrize("turned", [False, True])
def test_an_array_that_is_bound_to_one_device_is_refused_beside_one_on_many(turned: bool) -> None:
    one, many = jax.device_put(jnp.ones((48, 8)), jax.devices()[0]), put(values(), P("tp"))
    said = f"arrays: {int(turned)} is on many devices, {int(not turned)} on one; wanted all on one"
    for _ in range(2):  # once more, now that such a call is known
        with pytest.raises(TypeError, match=said):
            xl.stack([many, one] if not turned else [one, many])
    assert xl.stack([one, one]).shape == (2, 48, 8)


@pytest.mark.parametrize("turned", [False, True])
def test_an_array_that_is_bound_to_none_goes_where_the_others_are(turned: bool) -> None:
    one, many = jnp.ones((48, 8)), put(values(), P("tp"))
    arrays = [one, many] if turned else [many, one]
    for comm in ("auto", "native"):
        made = xl.stack(arrays, comm=comm)
        assert np.array_equal(made, np.stack(arrays))
        assert len(made.sharding.device_set) == 8
    back = jax.grad(lambda *xs: (xl.stack(xs) ** 2).sum(), (0, 1))(*arrays)
    assert all(np.array_equal(g, 2 * np.asarray(x)) for g, x in zip(back, arrays, strict=True))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("turned", [False, True])
def test_a_constant_may_be_on_many_devices_beside_a_tracer(turned: bool, kind: AxisType) -> None:
    many, x = put(values(), P("tp"), mesh(kind)), values() + 1
    arrays = (lambda x: [x, many]) if turned else (lambda x: [many, x])
    made = jax.jit(lambda x: xl.stack(arrays(x)))(put(x, P("tp"), mesh(kind)))
    assert np.array_equal(made, np.stack(arrays(x)))


@pytest.mark.parametrize("which", [0, 1, 2, (0, 2)])
def test_a_gradient_may_be_asked_of_some_inputs_alone(which: Any) -> None:
    q, k, v = (put(values() + n, P("tp")) for n in range(3))
    weight = jnp.arange(3 * 48.0)[:, None]

    def loss(*xs: Any) -> Any:
        return (xl.fuse_qkv(*xs, heads=4, kv_heads=4) ** 2 * weight).sum()

    alone = [jnp.asarray(values() + n) for n in range(3)]
    got = jax.tree.leaves(jax.grad(loss, which)(q, k, v))
    wanted = jax.tree.leaves(jax.grad(loss, which)(*alone))
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        assert np.array_equal(g, w)
    tangent = jax.jvp(lambda q: xl.stack([q, k]), (q,), (v,))[1]
    assert np.array_equal(tangent, np.stack([alone[2], np.zeros_like(alone[2])]))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_arrays_in_host_memory_are_refused(kind: AxisType) -> None:
    there = NamedSharding(mesh(kind), TP, memory_kind="pinned_host")
    held, x = jax.device_put(values(), there), put(values(), TP, mesh(kind))
    for run in (lambda: xl.interleave(held), lambda: reshard(x, there), lambda: all_gather(held)):
        with pytest.raises(ValueError, match=r"memory.*; wanted device memory: jax\.device_put"):
            run()


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_tracer_in_host_memory_is_refused(kind: AxisType) -> None:
    there = NamedSharding(mesh(kind), TP, memory_kind="pinned_host")
    told = NamedSharding(mesh(kind), TP)
    with pytest.raises(ValueError, match=r"x: float32<host>.* is in host memory; wanted device"):
        jax.jit(lambda x: xl.interleave(x, in_sharding=told))(jax.device_put(values(), there))


def test_a_tracer_on_automatic_axes_does_not_know_its_sharding() -> None:
    with pytest.raises(TypeError, match="a tracer does not know its sharding; say it with in_sh"):
        jax.jit(lambda x: reshard(x, NamedSharding(mesh(), P())))(put(values(), P("tp")))


def test_another_mesh_is_refused() -> None:
    other = jax.make_mesh((8,), ("x",), (AxisType.Auto,))
    said = r"^to: \(x\) on x=8; x lies on dp=2 tp=4: give it on the mesh of x$"
    with pytest.raises(ShardingError, match=said):
        reshard(put(values(), P("tp")), NamedSharding(other, P("x")))
    named = jax.make_mesh((2, 4), ("a", "b"), (AxisType.Auto,) * 2)
    said = r"^arrays: 0 lies on \(dp=2 tp=4\) .*, 1 on \(a=2 b=4\) .*; wanted one mesh, with its"
    with pytest.raises(ShardingError, match=said):
        xl.stack([put(values(), P("tp")), put(values(), P("b"), named)])
    traced = put(values(), P("tp"), mesh(AxisType.Explicit))
    held = put(values(), P("x"), jax.make_mesh((8,), ("x",), (AxisType.Explicit,)))
    said = r"^arrays: 0 lies on \(x=8\) of devices 0 1 2 3 4 5 6 7, 1 on \(dp=2 tp=4\); wanted one"
    with pytest.raises(ShardingError, match=said):
        jax.jit(lambda x: xl.stack([held, x]))(traced)


def test_another_order_of_devices_is_another_mesh() -> None:
    turned = jax.sharding.Mesh(mesh().devices[::-1], mesh().axis_names)
    x = put(values(), P("tp"))
    ids = "0 1 2 3 4 5 6 7", "4 5 6 7 0 1 2 3"
    here, there = (f"(dp=2 tp=4) of devices {order}" for order in ids)
    said = f"to: (-, tp) on dp=2 tp=4 with devices as {there}; x lies on {here}: give it on "
    with pytest.raises(ShardingError, match=re.escape(said)):
        reshard(x, NamedSharding(turned, P(None, "tp")))
    said = f"arrays: 0 lies on {here}, 1 on {there}; wanted one mesh, with its devices in one order"
    with pytest.raises(ShardingError, match=re.escape(said)):
        xl.stack([x, put(values(), P("tp"), turned)])


def test_arrays_of_other_shapes_are_refused() -> None:
    one = r"^x: an array of shape \(48, 8\); the layout takes \(3,\)$"
    two = "^layout: takes 1 arrays, 2 given$"
    with pytest.raises(ShapeError, match=one):
        reshard(put(values(), P("tp")), P(), layout=xl.Layout.identity((3,)))
    with pytest.raises(ShapeError, match=two):
        reshard([put(values(), P("tp"))] * 2, P())


def test_a_dtype_that_is_none_is_refused() -> None:
    for name in ("dtype", "reduce_dtype"):
        said = f"^{name}: 'bfloat17'; wanted a dtype of JAX or its name$"
        with pytest.raises(TypeError, match=said):
            all_gather(put(values(), P("tp")), **{name: "bfloat17"})


def test_a_mesh_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(AxisError, match=r"^mesh_axis: 'pp'; the mesh \(dp=2 tp=4\) has dp, tp"):
        all_gather(put(values(), P("tp")), mesh_axis="pp")


def test_a_place_that_is_left_to_the_compiler_is_refused() -> None:
    said = r"^to: sharding: P\(UNCONSTRAINED,\) leaves something to the compiler; name every axis"
    with pytest.raises(ValueError, match=said):
        reshard(put(values(), P("tp")), P(P.UNCONSTRAINED))
