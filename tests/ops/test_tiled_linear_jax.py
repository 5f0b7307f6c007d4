"""A tiled linear layer in JAX is differentiated, batched and compiled as the dense one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import xlayout as xl


def whole(*shape: int) -> Any:
    return (jnp.arange(np.prod(shape)) * 5 % 7 - 3).reshape(shape).astype(jnp.float32)


X, W, B = whole(4, 6), whole(7, 6), whole(7)


def tiled(x: Any, w: Any, b: Any) -> Any:
    return xl.tiled_linear(x, xl.to_tiles(w, grid=(3, 2)), b)


def dense(x: Any, w: Any, b: Any) -> Any:
    return x @ w.T + b


def same(found: Any, wanted: Any) -> bool:
    return bool(jax.tree.all(jax.tree.map(np.array_equal, found, wanted)))


def test_gradients_are_the_dense_layer_s() -> None:
    for wrap in (lambda f: f, jax.jit):
        found, wanted = (wrap(lambda *a, f=f: jax.vjp(f, *a)[1](whole(4, 7)))(X, W, B)
                         for f in (tiled, dense))  # fmt: skip
        assert same(found, wanted)


def test_tangents_are_the_dense_layer_s() -> None:
    given = ((X, W, B), (X + 1, W - 1, B + 2))
    assert same(jax.jvp(tiled, *given), jax.jvp(dense, *given))


def test_transforms_batch_each_argument() -> None:
    xs, ws, bs = (jnp.stack([t, t + 1, t - 1]) for t in (X, W, B))
    for axes in ((0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0)):
        given = [g if a == 0 else t for g, t, a in zip((xs, ws, bs), (X, W, B), axes, strict=True)]
        assert same(jax.vmap(tiled, axes)(*given), jax.vmap(dense, axes)(*given))


def test_the_batch_of_an_exported_program_stays_open() -> None:
    tiles = xl.to_tiles(W, grid=(3, 2))
    (batch,) = jax.export.symbolic_shape("b")
    seen = jax.ShapeDtypeStruct((batch, 6), jnp.float32)
    program = jax.export.export(jax.jit(lambda x: xl.tiled_linear(x, tiles, B)))(seen)
    assert same(program.call(X), dense(X, W, B))


def test_dtypes_promote_as_under_matmul() -> None:
    narrow = [[t.astype(jnp.bfloat16) for t in row] for row in xl.to_tiles(W, grid=(3, 2))]
    assert xl.tiled_linear(X, narrow, B.astype(jnp.bfloat16)).dtype == jnp.float32
    assert xl.tiled_linear(X.astype(jnp.bfloat16), narrow).dtype == jnp.bfloat16
    assert xl.tiled_linear(X.astype(jnp.bfloat16), narrow, B).dtype == jnp.float32


def test_a_program_holds_no_array_as_large_as_the_weight() -> None:
    tiles = xl.to_tiles(whole(60, 80), grid=(3, 2))
    gradient = jax.grad(lambda t, x: xl.tiled_linear(x, t).sum())
    program = jax.make_jaxpr(gradient)(tiles, whole(2, 80))
    sizes = [v.aval.size for eqn in program.eqns for v in eqn.outvars]
    assert max(sizes) == 20 * 40
