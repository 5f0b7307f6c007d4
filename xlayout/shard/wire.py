"""Wire: how many bytes a function moves between devices, whoever wrote its collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xlayout.registry import backend_of
from xlayout.shard.placement import verbs

__all__ = ["wire_bytes"]


def wire_bytes(fn: Callable[..., Any], /, *args: Any) -> dict[str, int]:
    """Bytes that each device receives from others, by collective.

    torch: `fn` runs, on every rank, and its collectives are counted as they pass; the figures are
    this rank's. JAX: `fn` is compiled under jit, not run, and its program is read; the figures are
    a device's on average, and what is inside a loop counts once. In either, dtypes are those that
    the program says, also on CPU.

    By the usual model: an all-gather or all-to-all over g devices receives (g - 1) / g of its
    result, a reduce-scatter g - 1 times its result, an all-reduce 2 (g - 1) / g of it.

    Args:
        fn: a function of arrays.
        *args: what to call it with; at least one array.

    Raises:
        TypeError: when no argument is a torch.Tensor or jax.Array.

    >>> import jax
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = jax.make_mesh((len(jax.devices()),), ("tp",), (jax.sharding.AxisType.Auto,))
    >>> x = jax.device_put(jax.numpy.ones((64, 64)), NamedSharding(mesh, P("tp")))
    >>> wire_bytes(lambda x: x * 2, x)
    {}
    """
    names = [backend_of(a).name for a in args if hasattr(a, "dtype")]
    found = next((name for name in names if name in ("torch", "jax")), None)
    if found is None:
        raise TypeError("args: no torch.Tensor or jax.Array among them; wanted at least one")
    counted: dict[str, int] = verbs(found, "wire").wire_bytes(fn, args)
    return counted
