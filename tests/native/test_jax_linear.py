"""The operation of a layout is linear: its derivatives and its batches are layouts as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import xlayout as xl
from xlayout_jax import native

SHAPE = (9, 24)
LAYOUTS = {
    "zip": xl.interleave.layout(SHAPE, axis=1),
    "transpose": xl.matrix_transpose.layout(SHAPE),
    "rope": xl.rope_halves.layout(SHAPE, heads=3, axis=1),
    "trim": xl.trim.layout(SHAPE, to=19, axis=1),
    "pad": xl.pad.layout(SHAPE, to=29, axis=1),
    "other rows": xl.trim.layout(SHAPE, to=7) >> xl.pad.layout((7, 24), to=8),
    "three pieces": xl.regroup.layout(SHAPE, sizes=(4, 8, 12), groups=2, axis=1),
}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every layout a call, however small, and however long its runs."""
    for gates, name in ((native.TRACED, "small"), (native.LOWERED, "by rows")):
        monkeypatch.delitem(gates, name)


def calls(function: Callable[..., Any], *arrays: Any) -> int:
    """How many calls of the kernel the compiled program contains."""
    text = jax.jit(function).lower(*arrays).compile().as_text()
    return int(text.count(f'custom_call_target="{native.TARGET}"'))


def values(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Any:
    return jax.numpy.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function in XLA's own ops, compiled separately."""

    def run(*arrays: Any) -> Any:
        with xl.native(False):
            return jax.jit(lambda *xs: function(*xs))(*arrays)

    return run


def agree(function: Callable[..., Any], *arrays: Any) -> None:
    """Check that results with the kernel, jitted or not, equal those without it."""
    wanted = jax.tree.map(np.asarray, plain(function)(*arrays))
    for made in (jax.jit(function)(*arrays), function(*arrays)):
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), b), made, wanted)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_gradient_is_the_inverse(name: str) -> None:
    layout = LAYOUTS[name]
    x, weight = values(), values(layout.out_shape, 1)
    gradient = jax.grad(lambda x: (layout(x) * weight).sum())
    assert np.array_equal(gradient(x), layout.inverse()(weight))
    assert np.array_equal(jax.jit(gradient)(x), layout.inverse()(weight))
    assert calls(gradient, x) == 1


@pytest.mark.parametrize("name", LAYOUTS)
def test_derivatives_of_any_order(name: str) -> None:
    layout = LAYOUTS[name]
    x, weight = values(), values(layout.out_shape, 1)

    def energy(x: Any) -> Any:
        return (layout(x) ** 3 * weight).sum()

    def turned(x: Any) -> Any:
        return jax.grad(lambda y: (jax.grad(energy)(y) ** 2).sum())(x)

    agree(turned, x)
    assert calls(turned, x) >= 2


def test_a_hessian() -> None:
    layout = xl.interleave.layout((2, 6), axis=1)

    def energy(x: Any) -> Any:
        return (layout(x) ** 3 * values((2, 6), 1)).sum()

    agree(jax.hessian(energy), values((2, 6)))
    made = np.asarray(jax.hessian(energy)(values((2, 6)))).reshape(12, 12)
    moved = np.asarray(layout.inverse()(values((2, 6), 1))) * 6 * np.asarray(values((2, 6)))
    np.testing.assert_allclose(made, np.diag(moved.ravel()), rtol=1e-6)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_tangent_goes_along(name: str) -> None:
    layout = LAYOUTS[name]
    value, tangent = jax.jvp(layout, (values(),), (values(seed=1),))
    assert np.array_equal(value, layout(values()))
    assert np.array_equal(tangent, layout(values(seed=1)))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_batch_is_a_layout_with_one_more_loop(name: str, axis: int) -> None:
    layout = LAYOUTS[name]
    batch = np.stack([np.asarray(values(seed=k)) for k in range(3)], axis)
    mapped = jax.vmap(layout, in_axes=axis, out_axes=axis)
    wanted = np.stack([np.asarray(layout(values(seed=k))) for k in range(3)], axis)
    assert np.array_equal(jax.jit(mapped)(batch), wanted)
    assert np.array_equal(mapped(jax.numpy.asarray(batch)), wanted)
    assert calls(mapped, batch) == 1


def test_a_batch_of_batches_of_gradients() -> None:
    layout = LAYOUTS["zip"]
    one = jax.grad(lambda x: (layout(x) ** 3).sum())
    agree(jax.vmap(jax.vmap(one), in_axes=1), values((4, 3, *SHAPE)))


def join(*xs: Any) -> Any:
    return xl.rearrange(xs, "n a, n b, n c -> n (a + b + c)")


def parts(x: Any) -> Any:
    return xl.rearrange(x, "n (a + b + c) -> a n, n b, c n", a=2, b=3)


def test_several_inputs_of_which_some_are_known() -> None:
    a, b, c = values((5, 2)), values((5, 3), 1), values((5, 4), 2)
    assert calls(join, a, b, c) == 1
    for wanted in ((0,), (1, 2), (0, 1, 2)):
        agree(jax.grad(lambda *xs: (join(*xs) ** 2).sum(), argnums=wanted), a, b, c)
    agree(lambda a: jax.jvp(lambda a: join(a, b, c), (a,), (a,)), a)
    agree(jax.vmap(join, in_axes=(0, None, 2)), values((7, 5, 2)), b, values((5, 4, 7)))
    agree(jax.vmap(join, in_axes=(None, 1, None)), a, values((5, 7, 3)), c)


def test_several_outputs_of_which_some_are_used() -> None:
    x = values((5, 9))
    assert calls(parts, x) == 1
    agree(parts, x)
    agree(jax.grad(lambda x: (parts(x)[1] ** 2).sum()), x)
    agree(jax.vmap(parts, in_axes=1, out_axes=1), values((5, 6, 9)))


def test_taylor_series() -> None:
    jet = pytest.importorskip("jax.experimental.jet").jet

    def split(x: Any) -> Any:
        return xl.split_qkv(x, heads=4, kv_heads=2, axis=1)

    agree(lambda x, d, e: jet(split, (x,), ((d, e),)), *(values(seed=k) for k in range(3)))


def test_remat_scan_and_while_take_it_along() -> None:
    layout = xl.interleave.layout((6, 6), axis=1)
    x = values((6, 6))

    def twice(x: Any) -> Any:
        body = jax.checkpoint(lambda y: jax.numpy.sin(layout(y)))
        return jax.lax.scan(lambda y, _: (body(y), y.sum()), x, None, length=3)[0].sum()

    agree(jax.grad(twice), x)
    looped = lambda x: jax.lax.fori_loop(0, 4, lambda _, y: layout(y), x)  # noqa: E731
    agree(looped, x)
    assert calls(looped, x) == 1


def test_whole_numbers_have_no_tangent() -> None:
    x = jax.numpy.arange(216).reshape(SHAPE)
    layout = LAYOUTS["zip"]
    value, _ = jax.jvp(lambda x: layout(x), (x,), (np.zeros(SHAPE, jax.dtypes.float0),))
    assert np.array_equal(value, layout(x))


def test_a_derivative_without_jit_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = LAYOUTS["zip"]
    gradient = jax.grad(lambda x: (layout(x) ** 3).sum())
    gradient(values())
    made = []
    monkeypatch.setattr(native, "_numbers", lambda moves: made.append(moves))
    gradient(values(seed=1))
    assert made == []


def test_its_name_is_the_layout() -> None:
    text = str(jax.make_jaxpr(LAYOUTS["zip"])(values()))
    assert f"relayout[linear={LAYOUTS['zip']}]" in text


def test_without_jit_it_runs_as_well() -> None:
    x = values()
    with jax.disable_jit():
        assert np.array_equal(xl.matrix_transpose(x), x.T)
        assert np.array_equal(jax.jit(xl.matrix_transpose)(x), x.T)


@pytest.mark.parametrize("looks", [jax.debug_nans, jax.debug_infs])
def test_what_looks_for_nans_comes_to_an_end(looks: Any) -> None:
    layout, x = LAYOUTS["zip"], values()
    bad = x.at[0, 0].set(np.nan if looks is jax.debug_nans else np.inf)
    with looks(True):
        for run in (layout, jax.jit(layout), jax.grad(lambda x: (layout(x) * x).sum())):
            with pytest.raises(FloatingPointError, match=r"nan|inf"):
                run(bad)
        assert np.array_equal(jax.jit(layout)(x), layout(np.asarray(x)))


def test_a_batch_of_unknown_size_is_plain_ops() -> None:
    (batch,) = jax.export.symbolic_shape("b")
    like = jax.ShapeDtypeStruct((batch, *SHAPE), np.float32)
    call = jax.export.export(jax.jit(jax.vmap(xl.matrix_transpose)))(like).call
    for count in (1, 3):
        x = np.stack([values(seed=k) for k in range(count)])
        assert np.array_equal(call(x), x.mT)
