"""A train step on eight devices, with a loss that uses a sharded weight twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

IN, OUT, BATCH = 64, 32, 16
SHARDED = P("fsdp")
WIDE = IN * OUT * 4 // 8 * 7  # bytes of a gather among eight, in float32
AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit


def mesh(kind: AxisType, shape: tuple[int, ...] = (8,)) -> jax.sharding.Mesh:
    names = ("fsdp",) if len(shape) == 1 else ("fsdp", "tp")
    return jax.make_mesh(shape, names, (kind,) * len(shape))


def arrays(on: jax.sharding.Mesh, weight: P = SHARDED) -> tuple[jax.Array, jax.Array]:
    """A weight, and a batch."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(IN, OUT)).astype(np.float32)
    x = rng.normal(size=(BATCH, IN)).astype(jnp.bfloat16)
    return (
        jax.device_put(w, NamedSharding(on, weight)),
        jax.device_put(x, NamedSharding(on, P("fsdp"))),
    )


def net(gather: Callable[[Any], Any], w: Any, x: Any) -> Any:
    """A loss that uses the weight twice."""
    full = gather(w).astype(jnp.bfloat16)
    y = jnp.tanh(x @ full) @ full.T
    return (y.astype(jnp.float32) ** 2).mean()


def mapped(gather: Callable[[Any], Any], check: bool = True) -> Callable[[Any, Any], Any]:
    """The loss, with each device computing its part of it."""

    def loss(w: Any, x: Any) -> Any:
        return jax.lax.pmean(net(gather, w, x), "fsdp")

    made: Callable[[Any, Any], Any] = jax.shard_map(
        loss, mesh=mesh(AUTO), in_specs=(P("fsdp"), P("fsdp")), out_specs=P(), check_vma=check
    )
    return jax.jit(made)
