"""Hand, JAX: the ops of `bench.contenders` on 1 KB, as one would write them in jax.numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from bench.hand_numpy import FORMS as NUMPY
from bench.hand_numpy import split_qkv

__all__ = ["FORMS", "array"]

array = jnp.asarray


def regroup(x: Any) -> Any:
    parts = x[:8].reshape(2, 4, 16), x[8:12].reshape(2, 2, 16), x[12:].reshape(2, 2, 16)
    return jnp.concatenate(parts, 1).reshape(16, 16)


FORMS: dict[str, Callable[..., Any]] = {
    **NUMPY,
    "matrix_transpose": lambda x: x.T,
    "permute_dims": lambda x: x.transpose(2, 0, 1),
    "fuse_qkv": lambda q, k, v: jnp.concatenate(
        (q.reshape(2, 4, 16), k.reshape(2, 2, 16), v.reshape(2, 2, 16)), 1
    ).reshape(16, 16),
    "regroup": regroup,
    "ungroup": lambda x: jnp.concatenate(split_qkv(x)),
    "from_tiles": lambda tiles: jnp.concatenate([jnp.concatenate(row, 1) for row in tiles]),
    "stack": jnp.stack,
    "pad": lambda x: jnp.pad(x, ((0, 4), (0, 0))),
    "layout(x), 3 pieces": regroup,
}
