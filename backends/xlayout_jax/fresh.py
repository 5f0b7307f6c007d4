"""Arrays in memory of their own: copied, or narrowed with a check of every value.

On a CPU no program does that. One would be compiled for the mesh that is set, even for an array on
other devices, and `jax_debug_nans` would take a NaN that it moves for one that it made.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def copied(x: jax.Array) -> jax.Array:
    """The values of `x`, on its devices."""
    if _on_cpu(x) and x.is_fully_addressable:  # else JAX returns `x` itself
        same: jax.Array = jax.device_put(x, may_alias=False)
        return same
    return jnp.copy(x)


def narrowed(x: jax.Array, name: str) -> jax.Array:
    """`x` in half the width; the check waits for the cast to end."""
    xp: Any = np if _on_cpu(x) else jnp
    wide = xp.asarray(x)
    with np.errstate(over="ignore", invalid="ignore"):
        small = wide.astype(name)
    if jnp.issubdtype(x.dtype, jnp.integer):
        fits = bool(xp.all(small.astype(x.dtype) == wide))
    else:  # real and imaginary parts apart: an infinite one says nothing of the other
        parts = (xp.real, xp.imag) if xp.iscomplexobj(wide) else (xp.real,)
        fits = all(bool(xp.all(xp.isfinite(p(small)) == xp.isfinite(p(wide)))) for p in parts)
    if not fits:
        raise OverflowError(f"x64='narrow': a value does not fit {name}; pass x64='keep'")
    narrow: jax.Array = jax.device_put(small, x.sharding)
    return narrow


def _on_cpu(x: jax.Array) -> bool:
    return all(device.platform == "cpu" for device in x.devices())
