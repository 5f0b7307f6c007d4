"""A gather in JAX along mesh axes that do not cut the array: gradients are sums over these too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout.jax
from tests.shard.train import AUTO, EXPLICIT, IN, OUT, mesh

Axes = str | tuple[str, ...]


def rows_of(on: Any, axes: Axes) -> jax.Array:
    """A batch of which the first row adds 256, and each of the other seven 1."""
    x = np.ones((8, IN), jnp.bfloat16)
    x[0] = 256
    return jax.device_put(x, NamedSharding(on, P(axes)))


@pytest.mark.parametrize(
    ("shape", "spec", "axes"),
    [
        ((8,), P("fsdp"), "fsdp"),
        ((8,), P(), "fsdp"),
        ((2, 4), P("fsdp"), ("tp", "fsdp")),
        ((2, 4), P(None, "tp"), ("tp", "fsdp")),
        ((2, 4), P(), ("fsdp", "tp")),
        ((2, 4), P("tp", "fsdp"), ("tp", "fsdp")),
    ],
    ids=str,
)
def test_on_explicit_axes_the_sum_is_made_in_float32(shape: Any, spec: P, axes: Axes) -> None:
    """In bfloat16, 256 + 1 is 256."""
    on = mesh(EXPLICIT, shape)
    with jax.set_mesh(on):
        w = jax.device_put(np.ones((IN, OUT), np.float32), NamedSharding(on, spec))
        x = rows_of(on, axes)

        def loss(w: Any) -> Any:
            full = xlayout.jax.all_gather(w, axes, dtype="bfloat16")
            assert jax.typeof(full).sharding.spec.reduced == set(jax.tree.leaves(axes))
            return (x @ full).astype("float32").sum()

        g = jax.jit(jax.grad(loss))(w)
    assert g.sharding.is_equivalent_to(w.sharding, 2)
    np.testing.assert_array_equal(g, np.full((IN, OUT), 263.0))


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("shape", "spec", "axes"),
    [
        ((8,), P(), ("fsdp",)),
        ((2, 4), P("fsdp"), ("tp", "fsdp")),
        ((2, 4), P("fsdp"), ("fsdp",)),
        ((2, 4), P(), ("fsdp", "tp")),
    ],
    ids=str,
)
def test_in_shard_map_parts_may_be_alike(
    shape: Any, spec: P, axes: tuple[str, ...], check: bool
) -> None:
    on = mesh(AUTO, shape)
    w = np.arange(32, dtype=np.float32).reshape(8, 4)

    def grad(gather: Any) -> Any:
        def loss(w: Any) -> Any:
            weights = jnp.arange(1, 1 + (full := gather(w)).size).reshape(full.shape)
            return jax.lax.psum((full * weights * full).sum(), axes)

        step = jax.shard_map(loss, mesh=on, in_specs=spec, out_specs=P(), check_vma=check)
        return jax.jit(jax.grad(step))(w)

    wanted = grad(lambda w: jax.lax.all_gather(w, axes, tiled=True))
    np.testing.assert_allclose(grad(lambda w: xlayout.jax.all_gather(w, axes)), wanted, rtol=1e-6)
