"""Tracers: what JAX's tracers tell of the arrays that they stand for."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

__all__ = ["is_batched", "is_explicit", "is_in_kernel", "is_staged", "is_tracer", "primal"]

_Tracer = jax.core.Tracer  # bound once: it is asked of the arrays of every call


def is_tracer(x: Any) -> bool:
    """Whether JAX is recording what becomes of `x`."""
    return isinstance(x, _Tracer)


def is_staged() -> bool:
    """Whether a compiler records: in its program constants have no memory to share or give away."""
    return is_tracer(lax.iota(np.int32, 1))  # made on the device: no guard sees a transfer


def primal(x: Any) -> Any:
    """The value inside the tracers of a derivative, which know it; those of `jit` do not."""
    while isinstance(x, _Tracer) and hasattr(x, "primal"):
        x = x.primal
    return x


def is_batched(x: Any) -> bool:
    """Whether `x` is one of many, inside `vmap`."""
    return type(x).__name__ == "BatchTracer"


def is_in_kernel(x: Any) -> bool:
    """Whether `x` is traced inside a Pallas kernel, as far as JAX tells.

    No public name does. If another version of JAX does not tell, kernels count as other programs.
    """
    trace = getattr(x, "_trace", None)
    while trace is not None:
        told = getattr(getattr(trace, "frame", None), "debug_info", None)
        if str(getattr(told, "traced_for", "")).startswith("pallas"):
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


def is_explicit(mesh: Any) -> bool:
    """Whether the sharding over all axes of a mesh is part of an array's type."""
    return bool(mesh.axis_names) and len(mesh.explicit_axes) == len(mesh.axis_names)
