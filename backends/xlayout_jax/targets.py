"""Targets: accelerators to compile for that are not there; what they would run can be read.

A compiler needs a description of the device, not the device. That of TPUs comes with the wheel
`libtpu`, that of CUDA devices with `jax-cuda12-plugin` and `jax-cuda12-pjrt`; no driver is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# What XLA asks of a CUDA device before it compiles: limits and sizes from the data sheet.
_H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132 fpus_per_core: 128
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  clock_rate_ghz: 1.98 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  device_memory_size: 84942979072
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
_V5E = {1: (1, 1), 4: (2, 2), 8: (2, 4)}
"""The grids of one host."""

_OPTIONS: dict[str, dict[str, str | bool]] = {
    "h100": {"xla_gpu_autotune_level": "0"},  # there is nothing to tune on
    "v5e": {},
}
_PLATFORMS = {"h100": "cuda", "v5e": "tpu"}
_WHEELS = {"h100": "jax-cuda12-plugin and jax-cuda12-pjrt (of JAX's version)", "v5e": "libtpu"}


def compiled(fn: Callable[..., Any], args: Sequence[Any], target: str, /) -> Any:
    """`fn`, compiled for as many devices of `target` as `args` lie on; it cannot be run.

    Raises:
        ValueError: for a target that is not known, or a number of devices that it does not come in.
        RuntimeError: where the wheel that can compile for it is missing.
    """
    if target not in _PLATFORMS:
        raise ValueError(f"target: {target!r}; wanted one of {', '.join(_PLATFORMS)}")
    exported = jax.export.export(jax.jit(fn), platforms=[_PLATFORMS[target]])(*args)
    devices = _devices(target, exported.nr_devices)
    placed = jax.tree.map(lambda x: _placed(x, devices), tuple(args))
    mesh = jax.sharding.get_mesh()
    with nullcontext() if mesh.empty else jax.set_mesh(_twin(mesh, devices)):
        return jax.jit(exported.call).lower(*placed).compile(_OPTIONS[target])


@lru_cache
def _devices(target: str, count: int) -> np.ndarray:
    if target == "v5e" and count not in _V5E:
        raise ValueError(
            f"target: {count} devices of 'v5e'; wanted one of {', '.join(map(str, _V5E))}"
        )
    try:
        found = _v5e(count) if target == "v5e" else _h100(count)
    except Exception as error:
        raise RuntimeError(
            f"target: {target!r} cannot be compiled for here: {error}; install {_WHEELS[target]}"
        ) from error
    return np.array(found.devices)


def _h100(count: int) -> Any:
    return topologies.get_topology_desc(
        platform="cuda", topology_name="h100", topology=f"1x1x{count}", target_config=_H100
    )


def _v5e(count: int) -> Any:
    # On a machine without TPUs, libtpu would ask the cloud who it is.
    for name, value in (
        ("TPU_SKIP_MDS_QUERY", "1"), ("TPU_WORKER_HOSTNAMES", "localhost"),
        ("TPU_WORKER_ID", "0"), ("TPU_ACCELERATOR_TYPE", "v5litepod-8"),
    ):  # fmt: skip
        os.environ.setdefault(name, value)
    x, y = _V5E[count]
    return topologies.get_topology_desc(
        platform="tpu", topology_name=f"v5e:{x}x{y}x1", chips_per_host_bounds=[x, y, 1]
    )


def _twin(mesh: Any, devices: np.ndarray) -> Mesh:
    """The same mesh of other devices."""
    grid = devices.reshape(mesh.axis_sizes)
    return Mesh(grid, mesh.axis_names, axis_types=mesh.axis_types)


def _placed(x: Any, devices: np.ndarray) -> Any:
    """An array without values that lies on the devices as `x` lies on its own."""
    if not hasattr(x, "dtype"):
        return x
    sharding = getattr(x, "sharding", None)
    if isinstance(sharding, NamedSharding):
        where = NamedSharding(_twin(sharding.mesh, devices), sharding.spec)
    else:
        where = NamedSharding(Mesh(devices, ("devices",)), PartitionSpec())  # type: ignore[no-untyped-call]
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)  # type: ignore[no-untyped-call]
