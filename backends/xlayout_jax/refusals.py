"""Refusals: why an array of JAX has no memory for another framework, and what would have."""

from __future__ import annotations

from typing import Any

import jax

from xlayout_jax.dtypes import is_key
from xlayout_jax.tracers import is_tracer

_SUB_BYTE = ("int2", "uint2", "int4", "uint4", "float4_e2m1fn")


def refuse_abstract(x: Any) -> None:
    if is_tracer(x):
        raise TypeError(
            f"{x.aval} is traced by jax.jit, grad or vmap and has no memory yet; "
            "exchange it outside, or call out with jax.pure_callback"
        )
    if not isinstance(x, jax.Array):
        raise TypeError(f"expected a jax.Array, got {type(x).__module__}.{type(x).__qualname__}")


def deleted(x: jax.Array) -> ValueError:
    return ValueError(f"{described(x)} was deleted or donated; its memory is no longer there")


def no_equivalent(x: jax.Array) -> TypeError:
    if is_key(x.dtype):
        return TypeError(f"{described(x)} holds random keys; pass jax.random.key_data(x)")
    hint = "cast it"
    if x.dtype.name in _SUB_BYTE:
        bits = 2 if x.dtype.name.endswith("int2") else 4
        wider = "int8" if "int" in x.dtype.name else "float16"
        call = f"lax.bitcast_convert_type(x.reshape(*x.shape[:-1], -1, {8 // bits}), jnp.uint8)"
        hint = f"cast it to {wider}, or pack it into bytes with {call}"
    return TypeError(f"{described(x)}: no other framework has {x.dtype}; {hint}")


def described(x: Any) -> str:
    return f"jax.Array {x.dtype}{list(x.shape)}"
