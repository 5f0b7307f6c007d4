"""Every op goes through JAX's transforms with the same values, as plain reshapes and transposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import xlayout as xl
from tests.ops.examples import Example, flat, lists, numbered, wanted
from tests.ops.matrix import EXAMPLES, ONE_OF_EACH
from tests.ops.memory import shares
from xlayout.errors import LayoutError, SizeError

PLAIN = {
    "reshape", "transpose", "slice", "concatenate", "broadcast_in_dim", "squeeze", "split",
    "expand_dims", "copy", "copy_p", "jit", "pjit", "pad",
}  # fmt: skip


def arrays(example: Example, dtype: Any = jnp.int32) -> list[jax.Array]:
    return [jnp.asarray(x, dtype) for x in numbered(example.shapes)]


def outputs(example: Example) -> Callable[..., tuple[jax.Array, ...]]:
    return lambda *xs: flat(example.call(*xs))


def primitives(closed: Any) -> set[str]:
    """The primitives of a jaxpr and of those inside it."""
    found = set()
    for equation in closed.jaxpr.eqns:
        found.add(equation.primitive.name)
        for inner in equation.params.values():
            if hasattr(inner, "jaxpr"):
                found |= primitives(inner)
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_it_is_plain_and_never_a_gather(example: Example) -> None:
    assert primitives(jax.make_jaxpr(outputs(example))(*arrays(example))) <= PLAIN


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_eval_shape(example: Example) -> None:
    made = jax.eval_shape(outputs(example), *arrays(example))
    values = flat(example.oracle(*numbered(example.shapes)))
    assert [y.shape for y in made] == [y.shape for y in values]
    assert all(y.dtype == jnp.int32 for y in made)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_vmap_is_a_loop(example: Example) -> None:
    batches = [np.stack([x, -x, x + 1]) for x in numbered(example.shapes)]
    batched = jax.jit(jax.vmap(outputs(example)))(*map(jnp.asarray, batches))
    loop = [flat(example.oracle(*row)) for row in zip(*batches, strict=True)]
    for y, alone in zip(batched, zip(*loop, strict=True), strict=True):
        assert np.asarray(y).tolist() == np.stack(alone).tolist()


def test_vmap_takes_an_input_that_is_not_batched() -> None:
    q, k = jnp.arange(12.0).reshape(3, 4), jnp.arange(2.0)
    fuse = jax.vmap(lambda q, k: xl.fuse_qkv(q, k, k, heads=4, kv_heads=2), in_axes=(0, None))
    for row, alone in zip(fuse(q, k), q, strict=True):
        assert row.tolist() == xl.fuse_qkv(alone, k, k, heads=4, kv_heads=2).tolist()


def test_a_constant_may_meet_a_tracer() -> None:
    q, k = jnp.arange(4.0), jnp.arange(2.0)
    fused = xl.fuse_qkv(q, k, k, heads=4, kv_heads=2)
    for traced in range(3):

        def fuse(x: jax.Array, traced: int = traced) -> jax.Array:
            qkv = [q, k, k]
            qkv[traced] = x
            return xl.fuse_qkv(*qkv, heads=4, kv_heads=2)

        assert jax.jit(fuse)([q, k, k][traced]).tolist() == fused.tolist()


@pytest.mark.parametrize("example", ONE_OF_EACH, ids=str)
def test_derivatives(example: Example) -> None:
    xs = arrays(example, jnp.float32)

    def loss(*xs: jax.Array) -> Any:
        return sum((y**3).sum() for y in flat(example.call(*xs)))

    def derivatives(*xs: jax.Array) -> Any:
        forwards = jax.jvp(outputs(example), xs, tuple(2 * x for x in xs))[1]
        return jax.grad(loss, tuple(range(len(xs))))(*xs), jax.hessian(loss)(*xs), forwards

    gradients, hessian, forwards = jax.jit(derivatives)(*xs)
    used = np.concatenate([y.ravel() for y in flat(example.oracle(*numbered(example.shapes)))])
    for got, x in zip(gradients, map(np.asarray, xs), strict=True):
        assert got.tolist() == (3 * x**2 * np.isin(x, used)).tolist()
    x = np.asarray(xs[0]).ravel()
    assert hessian.reshape(x.size, -1).tolist() == np.diag(6 * x * np.isin(x, used)).tolist()
    assert lists(forwards) == wanted(example, *(2 * x for x in xs))


def test_linearize() -> None:
    x = jnp.arange(6.0)
    made, push = jax.linearize(lambda x: xl.rearrange(x, "(a + b + c) -> a, b, c", a=3, b=2), x)
    assert lists(made) == [[0, 1, 2], [3, 4], [5]]
    assert lists(push(-x)) == [[0, -1, -2], [-3, -4], [-5]]


def test_the_gradient_of_a_bijection_is_its_inverse_and_nothing_more() -> None:
    x, g = jnp.zeros((8, 3)), jnp.arange(24.0).reshape(8, 3)
    made, back = jax.vjp(lambda x: xl.interleave(x, block=2), x)
    assert back(g)[0].tolist() == xl.deinterleave(g, block=2).tolist()
    assert primitives(jax.make_jaxpr(back)(made)) <= PLAIN


def test_control_flow_and_rematerialisation() -> None:
    x = jnp.arange(8.0)
    (thrice, _) = jax.lax.scan(lambda x, _: (xl.interleave(x, block=2), None), x, length=3)
    assert (
        thrice.tolist()
        == xl.interleave(xl.interleave(xl.interleave(x, block=2), block=2), block=2).tolist()
    )
    chosen = jax.lax.cond(True, xl.interleave, xl.deinterleave, x)
    assert chosen.tolist() == xl.interleave(x).tolist()
    loss = jax.checkpoint(lambda x: (xl.rope_halves(x, heads=2) ** 2).sum())
    assert jax.grad(loss)(x).tolist() == (2 * x).tolist()


@pytest.mark.parametrize("example", ONE_OF_EACH, ids=str)
def test_export(example: Example) -> None:
    xs = arrays(example)
    exported = export.export(jax.jit(outputs(example)))(*xs)
    assert lists(exported.call(*xs)) == wanted(example)


SEGMENTS = "(a=1 + b=1 + c=2 + d=2 + e=2) n -> (a + d + c + b + e) n"


def test_export_leaves_an_untouched_axis_open() -> None:
    (columns,) = export.symbolic_shape("columns")
    for op in (
        lambda x: xl.interleave(x, block=2),
        lambda x: xl.regroup(x, sizes=(4, 4), groups=2),
        xl.matrix_transpose,
        lambda x: xl.stack([x, x], axis=1),
        lambda x: xl.pad(x, to=9, value=3),
        lambda x: xl.split_qkv(x, heads=2, kv_heads=1)[1],
        lambda x: xl.rearrange(x, SEGMENTS),
    ):
        shape = jax.ShapeDtypeStruct((8, columns), jnp.float32)
        exported = export.export(jax.jit(op))(shape)
        for n in (3, 5):
            x = jnp.arange(8.0 * n).reshape(8, n)
            assert exported.call(x).tolist() == op(x).tolist()


def test_export_says_which_axis_cannot_be_open() -> None:
    (rows,) = export.symbolic_shape("rows")
    shape = jax.ShapeDtypeStruct((rows, 3), jnp.float32)
    text = r"interleave: axis 0 is dynamic \(.*rows.*\) and the layout depends on its size; only"
    with pytest.raises(SizeError, match=text):
        export.export(jax.jit(lambda x: xl.interleave(x, block=2)))(shape)
    with pytest.raises(LayoutError, match="rearrange: axis 0 is dynamic"):
        export.export(jax.jit(lambda x: xl.rearrange(x, "(a b) c -> (b a) c", a=2)))(shape)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_eager_result_is_never_a_buffer_of_the_input(example: Example) -> None:
    xs = arrays(example)
    for y in flat(example.call(*xs)):
        assert not any(y is x or shares(x, y) for x in xs)
        y.delete()
    assert not any(x.is_deleted() for x in xs)
    assert lists(example.call(*xs)) == wanted(example)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_a_donated_input_may_be_used_up() -> None:
    x = jnp.arange(8.0)
    made = jax.jit(lambda x: xl.interleave(x, block=2), donate_argnums=0)(x)
    assert made.tolist() == xl.interleave(np.arange(8.0), block=2).tolist()


def mesh() -> Any:
    return jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto, AxisType.Auto))


@pytest.mark.parametrize("spec", [("a", None), (None, "b"), (("a", "b"), None), ("b", "a")])
@pytest.mark.parametrize("jit", [True, False])
def test_sharded_inputs_give_the_same_values(spec: tuple[Any, Any], jit: bool) -> None:
    values = np.arange(32 * 8, dtype=np.int32).reshape(32, 8)
    x = jax.device_put(values, NamedSharding(mesh(), PartitionSpec(*spec)))
    ops: list[tuple[Any, Any]] = [
        (lambda x: xl.interleave(x, block=4), xl.interleave(values, block=4)),
        (xl.matrix_transpose, values.T),
        (lambda x: xl.regroup(x, sizes=(16, 8, 8), groups=4),
         xl.regroup(values, sizes=(16, 8, 8), groups=4)),
        (lambda x: xl.split_qkv(x, heads=4, kv_heads=2)[1],
         xl.split_qkv(values, heads=4, kv_heads=2)[1]),
    ]  # fmt: skip
    for op, want in ops:
        made = (jax.jit(op) if jit else op)(x)
        assert np.asarray(made).tolist() == want.tolist()
    assert not x.is_deleted()


def test_arrays_on_one_device_stay_there() -> None:
    device = jax.devices()[3]
    x = jax.device_put(jnp.arange(8.0), device)
    for y in (xl.interleave(x), xl.stack([x, x]), xl.pad(x, to=9), xl.trim(x, to=2, copy=None)):
        assert y.devices() == {device}


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_64_bits_when_jax_has_them(dtype: str) -> None:
    with jax.enable_x64(True):
        x = jnp.arange(8).astype(dtype)
        for y in (xl.interleave(x), xl.stack([x, x]), xl.pad(x, to=9, value=1)):
            assert y.dtype == dtype
        assert xl.interleave(x).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_a_recipe_made_without_64_bits_serves_with_them() -> None:
    shape = (6, 14)  # no other test has it
    for wide in (False, True, False):
        with jax.enable_x64(wide):
            x = jnp.ones(shape, float)
            assert xl.interleave(x).dtype == x.dtype == (jnp.float64 if wide else jnp.float32)


def test_a_key_array_of_random_numbers_is_an_array() -> None:
    keys = jax.random.split(jax.random.key(0), 8)
    made = jax.random.key_data(xl.interleave(keys))
    assert made.tolist() == xl.interleave(jax.random.key_data(keys)).tolist()


def test_to_a_compiler_a_constant_has_no_memory() -> None:
    x = jnp.arange(24.0).reshape(4, 6)
    seen = jax.jit(lambda _: xl.permute_dims(x, (0, 1), copy=None))(1)
    assert np.array_equal(seen, x)
    for options, error in (({"copy": False}, BufferError), ({"donate": True}, TypeError)):
        with pytest.raises(error, match=r"copy=False: .* out of sight|donate: cannot be promised"):
            jax.jit(lambda _, o=options: xl.permute_dims(x, (0, 1), **o))(1)
    assert not x.is_deleted()


def test_copy_is_checked_while_tracing_too() -> None:
    with pytest.raises(TypeError, match="copy: 0; wanted True, False or None"):
        jax.jit(lambda x: xl.matrix_transpose(x, copy=0))(jnp.zeros((2, 3)))


def test_gradients_of_integers_which_have_no_bytes_are_arrays_of_numpy() -> None:
    x = jnp.arange(12).reshape(3, 4)
    none = jax.grad(lambda x: (x * 2.0).sum(), allow_int=True)(x)
    for made in (xl.interleave(none, axis=1), xl.pad(none, to=5), *xl.unstack(xl.stack([none]))):
        assert isinstance(made, np.ndarray)
        assert made.dtype == jax.dtypes.float0


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_holes_of_64_bits_are_filled_where_jax_makes_no_such_arrays(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = xl.to_jax(torch.arange(6, dtype=getattr(torch, dtype)), x64="keep")
    value = 7 if dtype == "int64" else 1 / 3
    spread = xl.deinterleave.layout((12,)) >> xl.trim.layout((12,), to=6)
    for made, want in (
        (xl.pad(x, to=8, value=value), [0, 1, 2, 3, 4, 5, value, value]),
        (xl.apply(spread.inverse(), x, fill=value), [v for k in range(6) for v in (k, value)]),
    ):
        assert made.dtype == dtype
        assert made.tolist() == want


def test_a_bias_has_the_axes_that_strict_promotion_wants() -> None:
    x, w, b = jnp.ones((2, 3, 8)), jnp.arange(32.0).reshape(4, 8), jnp.arange(4.0)
    want = x @ w.T + b
    with jax.numpy_rank_promotion("raise"):
        made = xl.tiled_linear(x, xl.to_tiles(w, grid=(2, 2)), b)
    assert np.allclose(made, want)
