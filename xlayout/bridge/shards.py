"""Exchange of sharded arrays: one pointer per shard, and a sharding for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xlayout.algebra.shapes import a_type, as_shape
from xlayout.bridge.offer import exchange_named, exchange_of
from xlayout.errors import SizeError, about
from xlayout.registry import backend_module

__all__ = ["dtensor_to_jax", "jax_to_dtensor", "jax_to_shards", "shards_to_jax"]

_REFUSED = (TypeError, ValueError, BufferError)


def shards_to_jax(
    shards: Mapping[Any, Any] | Sequence[Any], sharding: Any, shape: Sequence[int]
) -> Any:
    """One sharded jax.Array that shares the memory of its shards; never copies.

    Args:
        shards: The shard of each of this process's devices: a mapping from jax.Device, or a
            sequence in the order of the sharding's mesh.
        sharding: A jax.sharding.Sharding.
        shape: The shape of the whole array.

    Raises:
        TypeError: a shard that is refused by `to_jax`, or dtypes that differ; shards that are
            neither a mapping nor a sequence.
        ValueError: a wrong number of shards, a shard of the wrong shape, or an uneven cut.
        BufferError: a shard that is not row-major, or not aligned.

    >>> import jax, numpy as np
    >>> sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    >>> part = np.frombuffer(np.ones(40, np.float32), np.float32)
    >>> part = part[-part.ctypes.data % 64 // 4:][:16]  # XLA shares 64-byte aligned memory
    >>> float(shards_to_jax([part], sharding, (16,)).sum())
    16.0
    """
    shape = as_shape(shape)
    jax = backend_module("jax", "distributed")
    devices = jax.devices_of(sharding, shape)
    if not isinstance(shards, Mapping):
        try:
            shards = list(shards)
        except TypeError:
            raise TypeError(
                f"shards: {a_type(shards)}; wanted a mapping from devices to arrays, or a sequence"
            ) from None
        if len(shards) != len(devices):
            raise SizeError(f"shards: {len(shards)}; wanted one for each of {devices}")
        shards = dict(zip(devices, shards, strict=True))
    if shards.keys() != set(devices):
        raise SizeError(f"shards: for {list(shards)}; wanted one for each of {devices}")
    parts, copying = [], "xlayout.to_jax(shard, copy=True)"
    for device in devices:
        shard = shards[device]  # once: a mapping may read it from a file, and fail in its own way
        with about(f"shards[{device}]", *_REFUSED):
            offered = exchange_of(shard).offer(shard)
            parts.append(jax.adopt_part(offered, device, sharding, shape, copying))
    return jax.bind(parts, sharding, shape)


def jax_to_shards(a: Any, /) -> dict[Any, Any]:
    """The shards of a jax.Array on this process's devices, as tensors in the same memory.

    Args:
        a: The array, on devices of this process or of several.

    Returns:
        The tensors by jax.Device, in the order of the array's shards.

    Raises:
        TypeError: a tracer, or a dtype that torch does not have.
        ValueError: an array that was deleted.
        BufferError: memory that `to_jax` or `shards_to_jax` lent JAX for reading, which torch would
            write into. What JAX took by itself, as `jax.device_put` may a read-only numpy array,
            does not tell, and is shared.

    >>> import jax.numpy as jnp
    >>> list(jax_to_shards(jnp.ones(2)).values())
    [tensor([1., 1.])]
    """
    jax = backend_module("jax", "distributed")
    torch = exchange_named("torch")
    with about("a", *_REFUSED):
        return {device: torch.adopt(part, copy=False) for device, part in jax.split(a).items()}


def dtensor_to_jax(dt: Any, /) -> Any:
    """A DTensor as a global jax.Array that shares the memory of its shards.

    Every process must call it. The JAX mesh gets the DTensor's axes; process k of JAX must be rank
    k of torch, with one device. `_StridedShard` is supported.

    Args:
        dt: The DTensor; its local tensor must be row-major.

    Raises:
        TypeError: not a DTensor, one that requires grad, or a dtype that JAX does not have.
        ValueError: a Partial placement, an uneven cut, or processes that do not match.
        BufferError: a local shard that is not row-major, or not aligned.

    In every process, with `w` a DTensor under `[Shard(0)]` on a mesh with the axis "tp":

        dtensor_to_jax(w).sharding.spec     # PartitionSpec("tp",), and no byte has moved

    >>> import torch
    >>> dtensor_to_jax(torch.ones(2))
    Traceback (most recent call last):
        ...
    TypeError: dt: expected a DTensor, got torch.Tensor
    """
    from xlayout.shard.placement import from_torch, to_jax  # not needed on one device

    torch, jax = backend_module("torch", "distributed"), backend_module("jax", "distributed")
    with about("dt", *_REFUSED):
        local = torch.offer_global(dt)
        sharding = from_torch(dt.device_mesh, dt.placements, dt.ndim)
    mesh = jax.mesh_of(torch.processes(dt.device_mesh), sharding.mesh.names)
    with about("dt", *_REFUSED):
        copying = "dt.clone(memory_format=torch.contiguous_format)"
        return jax.adopt_global(local, to_jax(sharding, mesh), tuple(dt.shape), copying)


def jax_to_dtensor(a: Any, device_mesh: Any, /) -> Any:
    """A sharded jax.Array as a DTensor that shares the memory of its shards.

    Args:
        a: A jax.Array under a NamedSharding, one device a process.
        device_mesh: torch's mesh, with the same axis names and ranks as JAX's.

    Raises:
        TypeError: a tracer, or a dtype that torch does not have.
        ValueError: another kind of sharding, several devices in a process, meshes that differ.
        BufferError: memory that was lent for reading (see `jax_to_shards`).

    In every process, with `a` under `PartitionSpec("tp")` and torch's mesh of the same ranks:

        jax_to_dtensor(a, mesh).placements  # (Shard(dim=0),), and no byte has moved

    >>> import numpy as np
    >>> jax_to_dtensor(np.ones(2), None)
    Traceback (most recent call last):
        ...
    TypeError: a: numpy.ndarray; wanted a jax.Array
    """
    from xlayout.shard.placement import from_jax, to_torch

    torch, jax = backend_module("torch", "distributed"), backend_module("jax", "distributed")
    with about("a", *_REFUSED):
        local = jax.offer_global(a)
        sharding = from_jax(a.sharding)
    torch.refuse_another(device_mesh, sharding.mesh.names, jax.processes(a.sharding.mesh))
    with about("a", *_REFUSED):
        return torch.adopt_global(local, device_mesh, to_torch(sharding, device_mesh), a.shape)
