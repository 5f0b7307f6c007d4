"""Gradients: the pullback of a bijective layout is its inverse, in every framework that has one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings

from tests.strategies import bijections, several
from xlayout.algebra import Layout

CUT = settings(max_examples=10)


def values(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@CUT
@given(bijections(24))
def test_the_vjp_of_a_bijection_is_its_inverse_in_torch(layout: Layout) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(values(layout.in_shape, 0), requires_grad=True)
    cotangent = torch.tensor(values(layout.out_shape, 1))
    (pulled,) = torch.autograd.grad(layout(x), x, cotangent)
    assert pulled.shape == x.shape
    assert torch.equal(pulled, layout.inverse()(cotangent))


@CUT
@given(bijections(24))
def test_the_vjp_of_a_bijection_is_its_inverse_in_jax(layout: Layout) -> None:
    jax = pytest.importorskip("jax")
    x, cotangent = (jax.numpy.asarray(values(s, k)) for k, s in
                    enumerate((layout.in_shape, layout.out_shape)))  # fmt: skip
    _, pull = jax.vjp(layout, x)
    (pulled,) = pull(cotangent)
    assert pulled.shape == x.shape
    assert np.array_equal(pulled, layout.inverse()(cotangent))


@CUT
@given(several(max_size=24))
@example(Layout(((2,),), ((),), ()))
def test_the_vjp_of_any_layout_adds_up_what_was_read(layout: Layout) -> None:
    torch = pytest.importorskip("torch")
    xs = [torch.tensor(values(s, k), requires_grad=True) for k, s in enumerate(layout.in_shapes)]
    made = layout(*xs)
    made = made if isinstance(made, tuple) else (made,)
    cotangents = [torch.tensor(values(y.shape, 99 + k)) for k, y in enumerate(made)]
    loss = sum((y * c).sum() for y, c in zip(made, cotangents, strict=True))
    loss = loss + sum(0 * x.sum() for x in xs)  # outputs of holes are constants without a gradient
    pulled = torch.autograd.grad(loss, xs, materialize_grads=True, allow_unused=True)
    table = layout.index()
    wanted = np.zeros(layout.in_size, dtype=np.float32)
    flat = np.concatenate([c.numpy().ravel() for c in cotangents])
    np.add.at(wanted, table[table >= 0], flat[table >= 0])
    found = np.concatenate([g.numpy().ravel() for g in pulled])
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_jax_differentiates_by_arrays_of_numpy() -> None:
    jax = pytest.importorskip("jax")
    from xlayout import matrix_transpose

    x, cotangent = values((2, 3), 0), values((3, 2), 1)
    for call in (matrix_transpose, Layout.permute((2, 3), (1, 0))):
        assert np.array_equal(jax.jvp(call, (x,), (x,))[1], x.T)
        assert np.array_equal(jax.vjp(call, x)[1](cotangent)[0], cotangent.T)
