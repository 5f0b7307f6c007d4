"""Derivatives that need batches go through exchanges and gathers: Hessians, Jacobians, and vmap."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
import xlayout.jax
from tests.shard.ops import REPEATS

X = np.arange(8, dtype=np.float32)
KINDS = [AxisType.Auto, AxisType.Explicit]


def mesh(kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("dp", "tp"), (kind, kind))


def put(x: Any, spec: P, kind: AxisType = AxisType.Auto) -> jax.Array:
    made: jax.Array = jax.device_put(x, NamedSharding(mesh(kind), spec))
    return made


def within(kind: AxisType) -> Any:
    """The mesh as a context, which JAX needs to make arrays of its own on explicit axes."""
    return jax.set_mesh(mesh(kind)) if kind is AxisType.Explicit else nullcontext()


# name: (the function, the same on one device)
MOVED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "interleave": (xl.interleave, xl.interleave),
    "pad": (lambda x: xl.pad(x, to=12, value=3), lambda x: xl.pad(x, to=12, value=3)),
    "stack": (lambda x: xl.stack([x, x]), lambda x: xl.stack([x, x])),
    "stack on a constant": (
        lambda x: xl.stack([put(X, P("tp")), x]),
        lambda x: xl.stack([jnp.asarray(X), x]),
    ),
    "reshard": (lambda x: xl.reshard(x, P(("dp", "tp"))), lambda x: x),
    "all_gather": (xl.all_gather, lambda x: x),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, AxisType.Auto) for name in MOVED), ("interleave", AxisType.Explicit),
     ("all_gather", AxisType.Explicit)],
)  # fmt: skip
def test_jacobians_and_hessians_are_those_of_one_device(name: str, kind: AxisType) -> None:
    moved, plain = MOVED[name]
    alone = jnp.asarray(X)
    with within(kind):
        x = put(X, P("tp"), kind)
        np.testing.assert_array_equal(jax.jacrev(moved)(x), jax.jacrev(plain)(alone))
        made = jax.hessian(lambda x: (moved(x) ** 3).sum())(x)
    np.testing.assert_array_equal(made, jax.hessian(lambda x: (plain(x) ** 3).sum())(alone))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["rows", "broadcast", "overlaps"])
def test_the_gradient_of_what_repeats_elements_is_a_sum(name: str, kind: AxisType) -> None:
    layout = REPEATS[name]
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    weight = np.arange(layout.out_size, dtype=np.float32).reshape(layout.out_shape)

    def loss(move: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: (move(x) ** 2 * weight).sum()

    alone = loss(layout)
    told = {"in_sharding": P("tp", "dp")} if kind is AxisType.Auto else {}
    moved = loss(lambda x: xl.reshard(x, P(None, "tp"), layout=layout))
    inside = loss(lambda x: xl.reshard(x, P(None, "tp"), layout=layout, **told))
    with within(kind):
        spread = put(x, P("tp", "dp"), kind)
        made = jax.grad(moved)(spread)
        assert made.sharding.is_equivalent_to(spread.sharding, 2)
        np.testing.assert_array_equal(made, jax.grad(alone)(x))
        np.testing.assert_array_equal(jax.jit(jax.grad(inside))(spread), jax.grad(alone)(x))
        np.testing.assert_array_equal(jax.hessian(moved)(spread), jax.hessian(alone)(x))
        applied = loss(lambda x: xl.apply(layout, x))
        np.testing.assert_array_equal(jax.grad(applied)(spread), jax.grad(alone)(x))


def test_a_step_inside_shard_map_is_batched() -> None:
    def loss(x: Any, weight: Any) -> Any:
        return jax.lax.pmean(((xlayout.jax.all_gather(x, "tp") * weight) ** 3).sum(), "tp")

    def plain(x: Any, weight: Any) -> Any:
        return ((x * weight) ** 3).sum()

    step = jax.shard_map(loss, mesh=mesh(), in_specs=(P("tp"), P()), out_specs=P())
    batch, weight = np.stack([X, X + 1, -X]), X[::-1] + 1
    for make in (lambda f: f, jax.grad, jax.hessian):
        made, wanted = (jax.vmap(make(f), in_axes=(0, None)) for f in (step, plain))
        np.testing.assert_allclose(jax.jit(made)(batch, weight), wanted(batch, weight), rtol=1e-6)


@pytest.mark.parametrize("cast", [True, False])
@pytest.mark.parametrize(
    ("dtype", "dst", "sent"),
    [
        ("bfloat16", P(), {"all_gather"}),
        ("float16", P(None, "tp"), {"all_to_all"}),
        ("float8_e5m2", P("dp"), {"collective_permute"}),
    ],
)
def test_narrow_floats_have_gradients_inside_shard_map(
    dtype: str, dst: P, sent: set[str], cast: bool
) -> None:
    """They travel as integers, of which JAX knows no derivative."""
    values, own = np.arange(64).reshape(8, 8) % 4 + 1, np.float32 if cast else dtype
    x, weight = jnp.asarray(values, own), np.asarray(values.T, own)

    @jax.jit
    @partial(jax.shard_map, mesh=mesh(), in_specs=P("tp"), out_specs=dst, check_vma=False)
    def moved(x: Any) -> Any:
        return xl.reshard(x, dst, in_sharding=P("tp"), dtype=dtype)

    assert xl.wire_bytes(moved, x).keys() == sent
    made, back = jax.vjp(moved, x)
    (gradient,) = back(weight.astype(dtype))
    assert made.dtype == dtype
    assert gradient.dtype == x.dtype
    assert np.array_equal(made, values)
    assert np.array_equal(gradient, values.T)
    assert np.array_equal(jax.jvp(moved, (x,), (weight,))[1], values.T)


@pytest.mark.parametrize("spec", [P(), P("dp")])
def test_a_tangent_may_lie_otherwise_than_its_array(spec: P) -> None:
    x, tangent = (put(X, at, AxisType.Explicit) for at in (P("tp"), spec))
    made = jax.jvp(xl.interleave, (x,), (tangent,))[1]
    np.testing.assert_array_equal(made, xl.interleave(X))


def test_a_batch_of_parts_is_moved_as_one_of_them() -> None:
    def inside(parts: Any) -> Any:
        return jax.vmap(lambda part: xl.interleave(part, in_sharding=P("tp")))(parts)

    of_each = P(None, "tp")
    step = jax.shard_map(inside, mesh=mesh(), in_specs=of_each, out_specs=of_each)
    batch = np.stack([X, X + 1, -X])
    np.testing.assert_array_equal(jax.jit(step)(batch), xl.interleave(batch, axis=1))


def test_of_a_batch_native_is_plain_ops() -> None:
    x = np.arange(3 * 8 * 8.0, dtype=np.float32).reshape(3, 8, 8)
    along = jax.vmap(lambda x: xl.interleave(x, axis=1, comm="native"))
    made = along(put(x, P(None, "tp"), AxisType.Explicit))
    np.testing.assert_array_equal(made, xl.interleave(x, axis=2))
    assert made.sharding.spec == P(None, "tp", None)
    padded = jax.vmap(lambda x: xl.pad(x, to=9, axis=1, value=3, comm="native"))(
        put(x, P(None, "tp"), AxisType.Explicit)
    )
    np.testing.assert_array_equal(padded, xl.pad(x, to=9, axis=2, value=3))


@pytest.mark.parametrize(
    ("to", "lies"), [(None, P()), (P(None, "tp"), P("dp"))], ids=["as XLA likes", "as asked"]
)
def test_of_native_a_cotangent_may_lie_otherwise_than_its_result(to: P | None, lies: P) -> None:
    values = np.arange(64, dtype=np.float32).reshape(8, 8) % 5
    weight = put(values.T + 1, lies)
    moved = partial(xl.matrix_transpose, comm="native", out_sharding=to)

    def cubed(move: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: (move(x) ** 3 * np.asarray(weight)).sum()

    def along(move: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: (jax.grad(cubed(move))(x) * weight).sum()

    def weighed(move: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: (move(x) * weight).sum()

    def told(x: Any) -> Any:
        return moved(x, in_sharding=P("tp"))

    x, alone = put(values, P("tp")), jnp.asarray(values)
    np.testing.assert_array_equal(jax.grad(weighed(moved))(x), np.asarray(weight).T)
    np.testing.assert_array_equal(jax.jit(jax.grad(weighed(told)))(x), np.asarray(weight).T)
    np.testing.assert_array_equal(jax.jvp(moved, (x,), (weight,))[1], np.asarray(weight).T)
    for of in (cubed, along):
        np.testing.assert_array_equal(jax.grad(of(moved))(x), jax.grad(of(jnp.transpose))(alone))
    np.testing.assert_array_equal(
        jax.hessian(cubed(moved))(x), jax.hessian(cubed(jnp.transpose))(alone)
    )


@pytest.mark.parametrize("first", KINDS, ids=["both kinds", "explicit"])
def test_of_native_a_cotangent_may_be_bound_to_no_device(first: AxisType) -> None:
    on = jax.make_mesh((2, 4), ("dp", "tp"), (first, AxisType.Explicit))
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    moved = partial(
        xl.matrix_transpose, comm="native", out_sharding=NamedSharding(on, P("tp", "dp"))
    )
    x = jax.device_put(values, NamedSharding(on, P("dp")))
    made, back = jax.vjp(moved, x)
    np.testing.assert_array_equal(made, values.T)
    for weight in (jnp.asarray(values), jax.device_put(values, jax.devices()[1])):
        np.testing.assert_array_equal(back(weight)[0], values.T)
    if first is AxisType.Explicit:
        np.testing.assert_array_equal(jax.jacrev(moved)(x), jax.jacrev(jnp.transpose)(values))


def test_of_a_batch_nobody_says_where_it_lies() -> None:
    x, to = put(np.ones((3, 8, 8)), P(None, "tp"), AxisType.Explicit), P("tp")
    along = jax.vmap(lambda x: xl.interleave(x, comm="native", out_sharding=to))
    with pytest.raises(
        TypeError, match=r"inside jax\.vmap, which no exchange sees through to where"
    ):
        along(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("looks", [jax.debug_nans, jax.debug_infs])
def test_what_looks_for_nans_comes_to_an_end(looks: Any, kind: AxisType) -> None:
    bad = np.nan if looks is jax.debug_nans else np.inf
    x = put(np.full((8, 8), bad, np.float32), P("tp"), kind)
    fine = put(np.ones((8, 8), np.float32), P("tp"), kind)
    with looks(True):
        for run in (xl.interleave, jax.grad(lambda x: xl.interleave(x).sum())):
            with pytest.raises(FloatingPointError, match=r"nan|inf"):
                run(x)
        np.testing.assert_array_equal(xl.interleave(fine), fine)
