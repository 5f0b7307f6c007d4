"""On explicit axes one device is treated as many are: JAX asks about every step there too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
import xlayout_jax

SHAPE = (8, 8)

OPS: dict[str, Callable[..., Any]] = {
    "interleave": xl.interleave,
    "regroup": lambda x, **o: xl.regroup(x, sizes=(4, 2, 2), groups=2, **o),
    "pad": lambda x, **o: xl.pad(x, to=9, value=3, **o),
    "apply": lambda x, **o: xl.apply(xl.interleave.layout(SHAPE), x, **o),
    "view": lambda x, **o: xl.rearrange(x, "a b -> (a b)", copy=None, **o),
}


def values() -> np.ndarray:
    return np.arange(64, dtype=np.float32).reshape(SHAPE)


def put(spec: P, kind: AxisType = AxisType.Explicit) -> jax.Array:
    on = jax.make_mesh((1, 1), ("dp", "tp"), (kind, kind), devices=jax.devices()[:1])
    x: jax.Array = jax.device_put(values(), NamedSharding(on, spec))
    return x


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("comm", ["auto", "local", "native"])
def test_an_axis_that_is_cut_is_taken_apart(name: str, comm: Any) -> None:
    op = OPS[name]
    for run in (op, jax.jit(op, static_argnames="comm")):
        made = run(put(P("tp")), comm=comm)
        np.testing.assert_array_equal(made, op(values()))
    gradient = jax.grad(lambda x: (op(x, comm=comm) ** 2).sum())(put(P("tp")))
    np.testing.assert_array_equal(gradient, 2 * values())


@pytest.mark.parametrize("comm", ["auto", "native"])
@pytest.mark.parametrize("specs", [(P(), P("tp")), (P(None, "tp"), P())])
def test_one_array_may_be_cut_and_another_whole(specs: tuple[P, P], comm: Any) -> None:
    def stack(*xs: Any) -> Any:
        return xl.stack(xs, comm=comm)

    def loss(*xs: Any) -> Any:
        return (stack(*xs) ** 2).sum()

    xs = tuple(map(put, specs))
    for run in (stack, stack, jax.jit(stack)):
        np.testing.assert_array_equal(run(*xs), np.stack([values()] * 2))
    for back in (jax.grad(loss, (0, 1)), jax.jit(jax.grad(loss, (0, 1)))):
        np.testing.assert_array_equal(back(*xs), [2 * values()] * 2)


def test_no_key_tells_it_from_a_plain_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no platform has two devices, a cached call is found whatever the array's sharding."""
    monkeypatch.setattr(xlayout_jax, "backends", dict)
    for x in (jax.numpy.asarray(values()), put(P("tp")), put(P(None, "tp")), put(P())):
        made = xl.interleave(x, axis=-2, block=2)
        np.testing.assert_array_equal(made, xl.interleave(values(), axis=-2, block=2))


def test_on_automatic_axes_it_is_an_array_like_any() -> None:
    x = put(P("tp"), AxisType.Auto)
    assert xlayout_jax.is_sharded(x) is False
    np.testing.assert_array_equal(xl.interleave(x), xl.interleave(values()))


def test_a_mesh_may_have_no_axes() -> None:
    alone = NamedSharding(jax.sharding.Mesh(np.array(jax.devices()[0]), ()), P())
    x = jax.device_put(values(), alone)
    np.testing.assert_array_equal(xl.interleave(x), xl.interleave(values()))
    np.testing.assert_array_equal(xl.reshard(x, alone), values())


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("spec", [P("dp", "tp"), P(None, "tp"), P(None, None), P()])
def test_a_view_may_have_fewer_axes_than_the_spec_of_its_array(spec: P, kind: AxisType) -> None:
    x = put(spec, kind)
    for op in (OPS["view"], lambda x: xl.rearrange(x, "(a b) c -> a b c", a=2, copy=None)):
        made = op(x)
        np.testing.assert_array_equal(made, op(values()))
        assert made.sharding.mesh == x.sharding.mesh
        assert not any(made.sharding.spec)  # which named axes of `x`
