"""Dtypes: those that are asked for, casts that keep 64 bits, and what travels as integers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = [
    "asked",
    "cast",
    "dtype_named",
    "dtype_of_sum",
    "filler",
    "is_key",
    "is_mistaken",
    "joined",
    "pinned",
    "unpinned",
]


def dtype_named(given: Any, argument: str = "dtype", /) -> Any:
    """A dtype, or the one of that name; `argument` is what gave it."""
    with suppress(TypeError):
        if given is not None:  # which would be NumPy's float64
            return jnp.dtype(given)
    raise TypeError(f"{argument}: {given!r}; wanted a dtype of JAX or its name")


def dtype_of_sum(asked: Any, dtype: Any, /) -> Any:
    """The dtype in which gradients are summed: as asked, but float64 and complex stay as wide.

    Raises:
        TypeError: for one that holds no gradients.
    """
    if not jnp.issubdtype(asked, jnp.inexact):
        raise TypeError(f"reduce_dtype: {asked}; wanted a dtype of floats, which gradients are")
    kept = any(jnp.issubdtype(dtype, kind) for kind in (jnp.complexfloating, jnp.float64))
    return jnp.promote_types(asked, dtype) if kept else asked


def asked(dtype: Any, own: Any, /) -> Any:
    """A dtype that a caller wants of an array that has its `own`.

    Raises:
        TypeError: for one of 64 bits that JAX would narrow.
    """
    if dtype != own and (made := jax.dtypes.canonicalize_dtype(dtype)) != dtype:
        raise TypeError(
            f"dtype: {dtype} of an array of {own} would be narrowed to {made}, because "
            f"jax_enable_x64 is off; enable it, or ask for {made}"
        )
    return dtype


def cast(x: Any, dtype: Any, /) -> Any:
    """`x` in a dtype, whether or not JAX makes such arrays by itself."""
    if x.dtype == dtype:
        return x
    with jax.enable_x64(True):
        return x.astype(dtype)


def is_key(dtype: Any, /) -> bool:
    """Whether arrays of a dtype hold random keys, which are no numbers."""
    return bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


def filler(value: Any, like: Any, /) -> Any:
    """A fill value in the dtype of `like`; for random keys, the key that is made of zeros."""
    if is_key(like.dtype):
        data = jax.eval_shape(pinned, jax.ShapeDtypeStruct((), like.dtype))  # type: ignore[no-untyped-call]
        return unpinned(jnp.zeros(data.shape, data.dtype), like)
    with jax.enable_x64(True):  # an array that came from elsewhere may have 64 bits all the same
        made = jnp.asarray(value, like.dtype)
        return lax.full_like(like, made, shape=()) if jax.typeof(like).weak_type else made


def joined(xs: Sequence[Any], axis: int, /) -> Any:
    """Arrays of one dtype, one after another along an axis."""
    return unpinned(lax.concatenate([_widened(x) for x in xs], axis), xs[0])


def is_mistaken(dtype: Any, /) -> bool:
    """Whether XLA on CPU mistakes the bytes of a dtype, as of those of two bits.

    To concatenate them crashes the process; to send them gives garbage, or crashes too.
    """
    return dtype.name in ("int2", "uint2")


def _widened(x: Any) -> Any:
    return lax.convert_element_type(x, jnp.int8) if is_mistaken(x.dtype) else x


def pinned(x: Any, /) -> Any:
    """What travels: narrow floats as integers, random keys as the numbers along a last axis.

    XLA widens bf16 and fp8 collectives on some platforms. Integers of two bits travel as bytes.
    """
    if is_key(x.dtype):
        return jax.random.key_data(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return _widened(x)
    bits = jnp.finfo(x.dtype).bits  # type: ignore[no-untyped-call]
    return x if bits > 16 else lax.bitcast_convert_type(x, jnp.dtype(f"uint{bits}"))


def unpinned(x: Any, like: Any, /) -> Any:
    """What `pinned` was given, which was of the dtype of `like`."""
    if x.dtype == like.dtype:
        return x
    if is_key(like.dtype):
        return jax.random.wrap_key_data(x, impl=jax.random.key_impl(like))
    if not jnp.issubdtype(like.dtype, jnp.floating):
        return lax.convert_element_type(x, like.dtype)
    return lax.bitcast_convert_type(x, like.dtype)
