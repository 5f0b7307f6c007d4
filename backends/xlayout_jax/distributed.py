"""Exchange of an array that many devices hold: its shards, and the sharding that binds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from xlayout_jax.exchange import Offer, adopt, obstacle, offer
from xlayout_jax.placement import refuse_unreduced
from xlayout_jax.tracers import is_tracer


def devices_of(sharding: Any, shape: tuple[int, ...], /) -> list[Any]:
    """This process's devices of a sharding, in the order of its mesh."""
    if not isinstance(sharding, jax.sharding.Sharding):
        raise TypeError(f"sharding: {type(sharding).__qualname__}; wanted a jax.sharding.Sharding")
    mesh = getattr(sharding, "mesh", None)
    if not isinstance(mesh, Mesh | None):
        raise TypeError(f"sharding: on an {type(mesh).__name__}; wanted a mesh of devices")
    refuse_unreduced(sharding, "sharding: ")
    if isinstance(sharding, NamedSharding) and len(sharding.spec) > len(shape):
        raise ValueError(f"sharding: {sharding.spec}; wanted no more entries than axes in {shape}")
    try:
        sharding.shard_shape(shape)
    except ValueError as error:
        raise ValueError(f"sharding: {error}; pad the array, JAX cuts evenly only") from error
    return list(sharding.addressable_devices_indices_map(shape))


def adopt_part(
    offered: Any, device: Any, sharding: Any, shape: tuple[int, ...], copying: str, /
) -> jax.Array:
    """The part of a device, in the memory that was offered; `copying` would make it fit."""
    wanted = sharding.shard_shape(shape)
    if tuple(offered.shape) != wanted:
        raise ValueError(
            f"shape {tuple(offered.shape)}; {sharding} cuts {shape} into {wanted}: "
            "wanted parts of that shape"
        )
    # Row-major without exception: over shards of different memory orders jit computes garbage.
    if why := obstacle(offered, "row_major"):
        raise BufferError(
            f"{offered.dtype}{list(offered.shape)} cannot be shared: {why}; "
            f"wanted memory as a copy has it, by {copying}"
        )
    return adopt(offered, copy=False, device=device)


def bind(parts: Sequence[jax.Array], sharding: Any, shape: tuple[int, ...], /) -> jax.Array:
    """One array out of the parts of this process's devices, in their memory."""
    dtypes = {part.dtype.name for part in parts}
    if len(dtypes) > 1:
        raise TypeError(f"shards: dtypes {', '.join(sorted(dtypes))}; wanted one for all")
    for part in parts:
        if sharding.memory_kind not in (None, kind := part.sharding.memory_kind):
            raise ValueError(
                f"sharding: memory kind {sharding.memory_kind!r}; the shards are in {kind!r} "
                "memory: share them there, and jax.device_put the whole"
            )
    return jax.make_array_from_single_device_arrays(shape, sharding, parts)


def split(x: Any, /) -> dict[Any, Offer]:
    """What each of this process's devices holds of `x`."""
    _refuse_unsharded(x)
    x.block_until_ready()
    return {shard.device: offer(shard.data) for shard in x.addressable_shards}


def offer_global(x: Any, /) -> Offer:
    """The one shard that this process holds of `x`."""
    shards = list(split(x).values())
    if not isinstance(x.sharding, NamedSharding):
        raise ValueError(f"sharded by {x.sharding}; wanted a NamedSharding, which names its axes")
    if len(shards) != 1:
        raise ValueError(f"{len(shards)} shards in this process; a DTensor has one a process")
    return shards[0]


def mesh_of(processes: Sequence[Any], names: Sequence[str], /) -> Mesh:
    """The mesh of the one device of each of these processes, nested as its axes are to be."""
    devices = {device.process_index: device for device in jax.devices()}
    if len(devices) != len(jax.devices()):
        raise ValueError(
            f"{len(jax.devices())} JAX devices in {len(devices)} processes; wanted one a process, "
            "like the ranks of a DeviceMesh (jax.distributed.initialize(local_device_ids=[...]))"
        )
    ranks = np.asarray(processes)
    if unknown := sorted(set(ranks.flat) - devices.keys()):
        raise ValueError(f"device_mesh: rank {unknown[0]}; JAX knows processes {sorted(devices)}")
    return Mesh(np.vectorize(devices.__getitem__, otypes=[object])(ranks), tuple(names))


def adopt_global(
    local: Any, sharding: NamedSharding, shape: tuple[int, ...], copying: str, /
) -> jax.Array:
    """The array of which `local` is this process's shard; `copying` would make it fit."""
    mine = devices_of(sharding, shape)
    if not mine:
        ranks = processes(sharding.mesh)
        raise ValueError(f"device_mesh: process {jax.process_index()} is not in {ranks}")
    return bind([adopt_part(local, mine[0], sharding, shape, copying)], sharding, shape)


def processes(mesh: Any, /) -> list[Any]:
    """The processes of a mesh's devices, nested as its axes are."""
    found: list[Any] = np.vectorize(lambda d: d.process_index, otypes=[int])(mesh.devices).tolist()
    return found


def _refuse_unsharded(x: Any) -> None:
    if is_tracer(x):
        raise TypeError(f"{x.aval} is traced and has no shards yet; exchange it outside")
    if not isinstance(x, jax.Array):
        raise TypeError(f"{type(x).__module__}.{type(x).__qualname__}; wanted a jax.Array")
    if x.is_deleted():
        raise ValueError(f"jax.Array {x.dtype}{list(x.shape)} was deleted or donated")
    refuse_unreduced(x.sharding)
