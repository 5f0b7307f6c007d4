"""Wire: how many bytes a function moves between devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from xlayout.errors import LayoutError
from xlayout.registry import backend_module, backend_of

__all__ = ["wire_bytes"]


def wire_bytes(fn: Callable[..., Any], /, *args: Any, target: str | None = None) -> dict[str, int]:
    """Bytes that each device receives from others, by collective.

    torch: `fn` runs on every rank, and its collectives are counted; the figures are those of this
    rank. JAX: `fn` is compiled under jit but not run, and the collectives of its program are
    counted; the figures are averages per device, rounded up, and the body of a loop counts once.
    Under jit an array on automatic axes carries no sharding: pass `in_sharding=` to ops in `fn`, or
    the figures are for what XLA does without it. In both, dtypes are those of the program, even if
    a CPU would widen them.

    The usual model applies: an all-gather or all-to-all over g devices receives (g - 1) / g of its
    result, a reduce-scatter g - 1 times its result, an all-reduce 2 (g - 1) / g of it.

    Args:
        fn: a function of arrays.
        *args: its arguments, which may be containers; at least one array, or for JAX a
            jax.ShapeDtypeStruct with a sharding.
        target: JAX only: compile for this accelerator, "h100" or "v5e", which need not be present,
            and count the collectives of that program. `make test-aot` names the wheels it needs.

    Raises:
        TypeError: when `fn` is no function, or no argument a torch.Tensor or jax.Array.
        ValueError: for a target with torch, or an unknown one.
        RuntimeError: for a target whose compiler is not installed, with the wheel that has it.

    >>> import jax
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = jax.make_mesh((len(jax.devices()),), ("tp",), (jax.sharding.AxisType.Auto,))
    >>> x = jax.device_put(jax.numpy.ones((64, 64)), NamedSharding(mesh, P("tp")))
    >>> wire_bytes(lambda x: x * 2, x)
    {}
    """
    if not callable(fn):
        raise TypeError(f"fn: {fn!r}; wanted a function, called as fn(*args)")
    names = (backend_of(a).name for a in _leaves(args) if hasattr(a, "dtype"))
    found = next((name for name in names if name in ("torch", "jax")), None)
    if found is None:
        raise TypeError("args: no torch.Tensor or jax.Array among them; wanted at least one")
    if target is not None and found == "torch":
        raise LayoutError(f"target: {target!r} with torch, which runs `fn`; leave it out")
    options = () if target is None else (target,)
    counted: dict[str, int] = backend_module(found, "wire").wire_bytes(fn, args, *options)
    return counted


def _leaves(x: Any) -> Iterator[Any]:
    if isinstance(x, (tuple, list, dict)):
        for part in x.values() if isinstance(x, dict) else x:
            yield from _leaves(part)
    else:
        yield x
