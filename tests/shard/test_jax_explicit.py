"""On explicit axes, where JAX asks about every step, an op says where its results lie."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
from xlayout.errors import ShardingError
from xlayout.shard import wire_bytes

BOTH = P("dp", "tp")

# name: (op, specs of its inputs, all of shape (8, 8), spec wanted for each result)
CASES: dict[str, tuple[Callable[..., Any], tuple[P, ...], P]] = {
    "stack": (lambda *xs, **o: xl.stack(xs, **o), (BOTH, P(None, "dp")), P(None, *BOTH)),
    "unstack": (xl.unstack, (BOTH,), P("tp")),
    "trim": (lambda x, **o: xl.trim(x, to=7, **o), (BOTH,), P(None, "tp")),
    "trim, in part": (lambda x, **o: xl.trim(x, to=6, **o), (P(("dp", "tp")),), P("dp")),
    "pad": (lambda x, **o: xl.pad(x, to=9, value=3, **o), (BOTH,), P(None, "tp")),
    "to_tiles": (lambda x, **o: xl.to_tiles(x, grid=(3, 1), **o), (BOTH,), P(None, "tp")),
    "flatten": (lambda x, **o: xl.rearrange(x, "a b -> (b a)", **o), (P("dp"),), P()),
    "segments": (
        lambda x, **o: xl.rearrange(x, "(q + k) h -> q h, k h", q=5, k=3, **o),
        (BOTH,), P(None, "tp")),
}  # fmt: skip


def mesh(*kinds: AxisType) -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("dp", "tp"), kinds or None)


def put(on: jax.sharding.Mesh, spec: P, seed: int = 0) -> jax.Array:
    values = np.random.default_rng(seed).standard_normal((8, 8), np.float32)
    x: jax.Array = jax.device_put(values, NamedSharding(on, spec))
    return x


def check(made: Any, wanted: Any, on: jax.sharding.Mesh, spec: P) -> None:
    results = jax.tree.leaves(made)
    for y, plain in zip(results, jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(y, plain)
        assert y.sharding.is_equivalent_to(NamedSharding(on, spec), y.ndim), y.sharding


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("inside", [False, True], ids=["no mesh", "set_mesh"])
def test_a_result_is_whole_along_what_cannot_cut_it(name: str, jit: bool, inside: bool) -> None:
    op, lies, spec = CASES[name]
    on = mesh()
    xs = [put(on, s, k) for k, s in enumerate(lies)]
    with jax.set_mesh(on) if inside else nullcontext():
        made = (jax.jit(op) if jit else op)(*xs)
    check(made, op(*map(np.asarray, xs)), on, spec)


@pytest.mark.parametrize("name", CASES)
def test_xla_moves_the_same_by_its_own_means(name: str) -> None:
    op, lies, spec = CASES[name]
    on = mesh()
    xs = [put(on, s, k) for k, s in enumerate(lies)]
    check(op(*xs, comm="native"), op(*map(np.asarray, xs)), on, spec)
    whole = NamedSharding(on, P())
    made = jax.jit(lambda *xs: op(*xs, comm="native", out_sharding=whole))(*xs)
    check(made, op(*map(np.asarray, xs)), on, P())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_axes_of_both_kinds_are_no_obstacle(name: str, jit: bool) -> None:
    op, lies, spec = CASES[name]
    on = mesh(AxisType.Explicit, AxisType.Auto)
    xs = [put(on, s, k) for k, s in enumerate(lies)]
    told = [x.sharding for x in xs]
    run = jax.jit(lambda *xs: op(*xs, in_sharding=told)) if jit else op
    check(run(*xs), op(*map(np.asarray, xs)), on, spec)


@pytest.mark.parametrize("name", CASES)
def test_gradients_come_back_as_the_inputs_lie(name: str) -> None:
    op, lies, _ = CASES[name]
    on = mesh()
    xs = [put(on, s, k) for k, s in enumerate(lies)]

    def loss(*xs: Any) -> Any:
        return sum((y**2).sum() for y in jax.tree.leaves(op(*xs)))

    every = tuple(range(len(xs)))
    wanted = jax.grad(loss, every)(*(jnp.asarray(np.asarray(x)) for x in xs))
    with jax.set_mesh(on):
        made = jax.jit(jax.grad(loss, every))(*xs)
    for g, plain, x in zip(made, wanted, xs, strict=True):
        np.testing.assert_array_equal(g, plain)
        assert g.sharding.is_equivalent_to(x.sharding, 2)


@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_what_is_left_to_xla_is_compiled_once(
    kind: AxisType, caplog: pytest.LogCaptureFixture
) -> None:
    x, found = put(mesh(kind, kind), BOTH), []
    for _ in range(2):
        caplog.clear()
        with jax.log_compiles():
            xl.rope_halves(x, heads=2, comm="native")
        found.append("XLA compilation" in caplog.text)
    assert found == [True, False]


def test_many_layouts_are_applied_as_each_is() -> None:
    x, layout = put(mesh(), BOTH), xl.interleave.layout((8, 8))
    for made in xl.apply_many([layout, layout], [x, x]):
        check(made, layout(np.asarray(x)), mesh(), xl.apply(layout, x).sharding.spec)


UNREDUCED: dict[str, Callable[..., Any]] = {
    "pad": lambda x: xl.pad(x, to=9, value=5),
    "stack": lambda x: xl.stack([x, x]),
    "a layout": lambda x: xl.Layout.pad((8, 8), 9)(x, fill=5),
    "applied": lambda x: xl.apply(xl.Layout.pad((8, 8), 9), x, fill=5),
    "in place": lambda x: xl.interleave(x, comm="local"),
    "by XLA": lambda x: xl.interleave(x, comm="native"),
    "moved": lambda x: xl.reshard(x, P("dp")),
}


@pytest.mark.parametrize("op", UNREDUCED.values(), ids=UNREDUCED)
@pytest.mark.parametrize("inside", [False, True], ids=["no mesh", "set_mesh"])
def test_what_is_filled_in_is_not_summed_with_sums_that_are_not_done(
    op: Callable[..., Any], inside: bool
) -> None:
    def product(a: jax.Array, spec: Any) -> Any:
        return jax.jit(lambda a, b: jnp.einsum("ij,jk->ik", a, b, out_sharding=spec))(a, a.T)

    on, unreduced = mesh(), P(unreduced={"tp"})  # type: ignore[no-untyped-call]
    a = put(on, P(None, "tp"))
    said = (
        r": P\(None, None, unreduced=\{'tp'\}\): its sums are not done, .* by jax.sharding.reshard"
    )
    with jax.set_mesh(on) if inside else nullcontext():
        x = product(a, NamedSharding(on, unreduced))
        whole = jax.sharding.reshard(x, NamedSharding(on, P()))
        np.testing.assert_allclose(whole, np.asarray(a) @ np.asarray(a).T, atol=1e-5)
        op(whole)  # runs again without a look at the arrays
        for run in (op, jax.jit(op)):
            with pytest.raises(ValueError, match=said):
                run(x)


def test_what_can_stay_is_not_moved() -> None:
    x = put(mesh(), P(None, "tp"))
    assert wire_bytes(lambda x: xl.trim(x, to=7), x) == {}
    assert wire_bytes(lambda x: xl.unstack(x), x) == {}
    with pytest.raises(ShardingError, match=r"^out_sharding: the data does not fall into a shardi"):
        xl.unstack(put(mesh(), BOTH), comm="local")


def test_a_part_of_a_result_with_other_axes_needs_a_place_to_lie() -> None:
    wanted = (
        "out_sharding: the data does not fall into a sharding of ((8,), (8,), (8,), (8,), (8,), "
        "(8,), (8,), (8,)), which has other axes than the input (8, 8); say how the result is to "
        "lie"
    )

    def part(x: Any) -> Any:
        return xl.unstack(x, in_sharding=P("dp"))

    with pytest.raises(ShardingError, match=f"^{re.escape(wanted)}"):
        jax.shard_map(part, mesh=mesh(), in_specs=P("dp"), out_specs=P())(put(mesh(), P("dp")))
