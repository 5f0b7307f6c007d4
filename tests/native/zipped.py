"""An array whose halves JAX interleaves by the kernel, and what a program has for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
from xlayout_jax import native

__all__ = ["SHAPE", "called", "compiled", "jitted", "mesh", "put", "values", "zipped"]

SHAPE = (256, 384)


def zipped(x: Any) -> Any:
    return xl.interleave(x, axis=1)


def values(shape: tuple[int, ...] = SHAPE) -> Any:
    return jax.numpy.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def jitted(function: Callable[..., Any]) -> Any:
    """The function, jitted anew so that JAX has nothing cached for it."""
    return jax.jit(lambda *xs: function(*xs))


def compiled(function: Callable[..., Any], *arrays: Any) -> str:
    """The text of the compiled program."""
    text: str = jitted(function).lower(*arrays).compile().as_text()
    return text


def called(text: str) -> bool:
    return native.TARGET in text


def mesh(kind: AxisType = AxisType.Auto) -> Any:
    return jax.make_mesh((8,), ("d",), axis_types=(kind,))


def put(x: Any, spec: P, on: Any = None) -> Any:
    return jax.device_put(x, NamedSharding(on or mesh(), spec))
