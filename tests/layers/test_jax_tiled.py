"""TiledLinear in flax.nnx is `nnx.Linear`: its outputs, gradients and initial values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType

import xlayout as xl
from xlayout.errors import AxisError, LayoutError, SizeError

pytest.importorskip("flax")

from flax import nnx

from xlayout.jax import TiledLinear


def whole(*shape: int) -> Any:
    return (jnp.arange(np.prod(shape)) * 5 % 7 - 3).reshape(shape).astype(jnp.float32)


def dense(into: int, out: int, *, bias: bool = True, **options: Any) -> nnx.Linear:
    made: dict[str, Any] = {
        "kernel_init": lambda _, shape, dtype: whole(*shape).astype(dtype),
        "bias_init": lambda _, shape, dtype: whole(*shape).astype(dtype),
        **options,
    }
    return nnx.Linear(into, out, use_bias=bias, rngs=nnx.Rngs(0), **made)


def same(found: Any, wanted: Any) -> bool:
    return bool(jax.tree.all(jax.tree.map(np.array_equal, found, wanted)))


def state(layer: nnx.Module) -> Any:
    return nnx.to_pure_dict(nnx.state(layer))


@st.composite
def layers(draw: st.DrawFn) -> tuple[nnx.Linear, TiledLinear]:
    sizes = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    of = dense(*sizes, bias=draw(st.booleans()))
    into, out = (draw(st.integers(1, n)) for n in sizes)
    return of, TiledLinear.from_linear(of, in_splits=into, out_splits=out)


@settings(max_examples=8)  # JAX compiles for each shape
@given(both=layers(), batch=st.sampled_from([(), (2,), (2, 3), (0,)]), apart=st.booleans())
def test_outputs_are_the_dense_layer_s(
    both: tuple[nnx.Linear, TiledLinear], batch: tuple[int, ...], apart: bool
) -> None:
    of, tiled = both
    x = whole(*batch, of.in_features)
    parts = [x[..., a:b] for a, b in zip(tiled.in_parts, tiled.in_parts[1:], strict=False)]
    assert same(tiled(parts if apart else x), of(x))


def test_its_bias_has_the_axes_that_strict_promotion_wants() -> None:
    of = dense(6, 4)
    tiled = TiledLinear.from_linear(of, in_splits=2, out_splits=2)
    for batch in ((), (2,), (2, 3)):
        x = whole(*batch, 6)
        with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
            assert same(tiled(x), of(x))


@settings(max_examples=8)  # JAX compiles for each shape
@given(both=layers())
def test_back_to_dense_is_where_it_came_from(both: tuple[nnx.Linear, TiledLinear]) -> None:
    of, tiled = both
    assert same(state(tiled.to_linear()), state(of))
    assert [[k.shape for k in row] for row in tiled.kernels] == [
        [(a, b) for b in xl.partition(of.out_features, tiled.out_splits)]
        for a in xl.partition(of.in_features, tiled.in_splits)
    ]


def test_numpy_s_arrays_are_taken_as_by_the_dense_layer() -> None:
    tiled = TiledLinear.from_linear(dense(6, 5), in_splits=4)
    assert same(tiled(np.ones((2, 6))), dense(6, 5)(np.ones((2, 6))))


def test_torch_s_are_not() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"^x: a torch\.Tensor; wanted a jax\.Array$"):
        TiledLinear(6, 4, rngs=nnx.Rngs(0))(torch.ones(6))


@pytest.mark.parametrize("wrap", [lambda f: f, nnx.jit], ids=["eager", "jit"])
def test_gradients_are_the_dense_layer_s(wrap: Callable[..., Any]) -> None:
    of = dense(6, 5)
    tiled = TiledLinear.from_linear(of, in_splits=4, out_splits=2)
    x, cotangent = whole(2, 6), whole(2, 5)
    gradient = wrap(nnx.grad(lambda layer: (layer(x) * cotangent).sum()))
    found, wanted = gradient(tiled), nnx.to_pure_dict(gradient(of))
    kernels = [[found["kernels"][i][o][...] for o in range(2)] for i in range(4)]
    assert same(xl.from_tiles(kernels), wanted["kernel"])
    assert same(found["bias"][...], wanted["bias"])


def test_it_trains_and_compiles() -> None:
    tiled = TiledLinear(6, 5, in_splits=2, out_splits=2, rngs=nnx.Rngs(0))

    @nnx.jit
    def step(layer: TiledLinear, x: Any) -> Any:
        loss, gradient = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())(layer)
        nnx.update(layer, jax.tree.map(lambda p, g: p - 0.1 * g, nnx.state(layer), gradient))
        return loss

    first, second = step(tiled, whole(8, 6)), step(tiled, whole(8, 6))
    assert second < first


@pytest.mark.parametrize("bias", [True, False])
def test_the_same_seed_draws_the_same_layer(bias: bool) -> None:
    options: dict[str, Any] = {"use_bias": bias, "bias_init": nnx.initializers.normal()}
    of = nnx.Linear(40, 30, rngs=nnx.Rngs(7), **options)
    tiled = TiledLinear(40, 30, in_splits=3, out_splits=4, rngs=nnx.Rngs(7), **options)
    assert same(state(tiled.to_linear()), state(of))


@pytest.mark.parametrize("dtype", [None, jnp.bfloat16])
@pytest.mark.parametrize("param_dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("given", [jnp.float32, jnp.bfloat16, jnp.int32])
def test_dtypes_are_the_dense_layer_s(dtype: Any, param_dtype: Any, given: Any) -> None:
    of = dense(6, 5, dtype=dtype, param_dtype=param_dtype)
    tiled = TiledLinear.from_linear(of, in_splits=2)
    x = whole(2, 6).astype(given)
    assert tiled(x).dtype == of(x).dtype
    assert same(tiled(x), of(x))
    assert {leaf.dtype for leaf in jax.tree.leaves(state(tiled))} == {jnp.dtype(param_dtype)}


def test_how_it_is_computed_and_told_goes_there_and_back() -> None:
    of = dense(
        6, 5, precision="highest", dtype=jnp.bfloat16, param_dtype=jnp.float16,
        kernel_metadata={"told": "kernel"}, bias_metadata={"told": "bias"},
    )  # fmt: skip
    tiled = TiledLinear.from_linear(of, in_splits=2)
    for layer in (tiled, tiled.to_linear()):
        assert (layer.precision, layer.dtype, layer.param_dtype) == (
            "highest", jnp.bfloat16, jnp.float16,
        )  # fmt: skip
        assert layer.bias.told == "bias"
    assert tiled.kernels[1][0].told == tiled.to_linear().kernel.told == "kernel"


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_what_an_initializer_tells_is_told_of_each_tile(kind: AxisType) -> None:
    options: dict[str, Any] = {
        "kernel_init": nnx.with_partitioning(nnx.initializers.normal(), (None, "tp"), told="init"),
        "bias_init": nnx.with_partitioning(nnx.initializers.normal(), ("tp",)),
        "kernel_metadata": {"told": "kernel", "more": 1},
    }

    def made() -> TiledLinear:
        return TiledLinear(12, 16, in_splits=3, out_splits=2, rngs=nnx.Rngs(7), **options)

    with jax.set_mesh(jax.make_mesh((4,), ("tp",), (kind,))):
        of, tiled = nnx.Linear(12, 16, rngs=nnx.Rngs(7), **options), made()
        back = tiled.to_linear()
        assert same(state(back), state(of))
        for layer in (tiled, nnx.eval_shape(made)):
            tile = layer.kernels[2][1]
            assert (type(tile), tile.shape) == (nnx.Param, (4, 8))
            assert tile.get_metadata() == of.kernel.get_metadata() == back.kernel.get_metadata()
        assert tiled.kernels[2][1][...].sharding == of.kernel[...].sharding


def test_the_layers_share_no_memory() -> None:
    of = dense(6, 5)
    tiled = TiledLinear.from_linear(of)
    back = tiled.to_linear()
    for layer in (of, tiled):
        jax.tree.map(lambda leaf: leaf.delete(), nnx.to_pure_dict(nnx.state(layer)))
    assert same(state(back), state(dense(6, 5)))


def test_a_program_holds_no_array_as_large_as_the_kernel() -> None:
    graph, held = nnx.split(TiledLinear(80, 60, in_splits=2, out_splits=3, rngs=nnx.Rngs(0)))
    x = whole(2, 80)
    program = jax.make_jaxpr(jax.grad(lambda held: nnx.merge(graph, held)(x).sum()))(held)
    assert max(v.aval.size for eqn in program.eqns for v in eqn.outvars) == 40 * 20


# -- refusals ------------------------------------------------------------------------------------

RNGS = {"rngs": nnx.Rngs(0)}
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no inputs": (
        lambda: TiledLinear(0, 4, **RNGS), SizeError, "^in_features: 0; wanted at least 1$"
    ),
    "half outputs": (
        lambda: TiledLinear(6, 4.5, **RNGS), TypeError, r"^out_features: 4\.5 is a float; wanted"
    ),
    "no rows": (
        lambda: TiledLinear(6, 4, in_splits=0, **RNGS), SizeError, "^in_splits: 0; wanted at least"
    ),
    "too many rows": (
        lambda: TiledLinear(6, 4, in_splits=7, **RNGS), SizeError,
        "^in_splits: 7; wanted 1 to in_features = 6$",
    ),
    "too many columns": (
        lambda: TiledLinear(6, 4, out_splits=5, **RNGS), SizeError,
        "^out_splits: 5; wanted 1 to out_features = 4$",
    ),
    "a bias that counts": (
        lambda: TiledLinear(6, 4, use_bias=1, **RNGS), TypeError,  # type: ignore[arg-type]
        "^use_bias: 1; wanted True or False$",
    ),
    "too narrow": (
        lambda: TiledLinear(6, 4, in_splits=2, **RNGS)(whole(2, 5)), SizeError,
        "^x: last axis 5; wanted in_features = 6$",
    ),
    "a scalar": (
        lambda: TiledLinear(6, 4, **RNGS)(whole()), AxisError, r"^x: no axes; wanted \(\.\.\., 6\)$"
    ),
    "a list of numbers": (
        lambda: TiledLinear(6, 4, **RNGS)([1.0]), TypeError, r"got builtins\.float; convert it"
    ),
    "too few parts": (
        lambda: TiledLinear(6, 4, in_splits=2, **RNGS)([whole(6)]), SizeError,
        "^x: 1 parts; wanted in_splits = 2$",
    ),
    "a part too wide": (
        lambda: TiledLinear(6, 4, in_splits=2, **RNGS)([whole(3), whole(4)]), SizeError,
        r"^x\[1\]: last axis 4; kernels\[1\] takes 3$",
    ),
    "no layer": (
        lambda: TiledLinear.from_linear(whole(6, 4)), TypeError,
        r"^linear: a .*ArrayImpl; wanted a flax\.nnx\.Linear$",
    ),
    "a product of its own": (
        lambda: TiledLinear.from_linear(dense(6, 4, preferred_element_type=jnp.float32)),
        LayoutError, "^linear: it has a preferred_element_type of its own, which tiles do not",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refuses(what: str) -> None:
    call, error, text = REFUSED[what]
    with pytest.raises(error, match=text):
        call()
