"""One rank of two, run by `test_processes` with its number, torch's port and JAX's port."""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.distributed as dist
from jax.experimental.multihost_utils import process_allgather
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from xlayout.bridge import dtensor_to_jax, jax_to_dtensor


def check(mesh: Any, placements: list[Any], dtype: torch.dtype = torch.float32) -> None:
    """There and back: the same pointer, the same values, the same placements."""
    shape = (8, 6)
    whole = torch.arange(prod(shape)).view(shape).to(dtype)
    if any(isinstance(p, _StridedShard) for p in placements):
        rows = whole.chunk(2)[dist.get_rank()].clone()
        x = DTensor.from_local(
            rows, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
        )
    else:
        x = distribute_tensor(whole, mesh, placements)
    local = x.to_local()

    a = dtensor_to_jax(x)
    (shard,) = a.addressable_shards
    assert shard.data.unsafe_buffer_pointer() == local.data_ptr()
    assert a.shape == shape
    assert np.array_equal(np.asarray(process_allgather(a, tiled=True)), whole.float().numpy())
    assert float(jax.jit(lambda x: x.astype(jnp.float32).sum())(a)) == float(whole.float().sum())

    back = jax_to_dtensor(a, mesh)
    assert back.to_local().data_ptr() == local.data_ptr()
    assert back.placements == x.placements, (back.placements, x.placements)
    assert back.stride() == x.stride()
    assert torch.equal(back.full_tensor().float(), whole.float())


def main(rank: int, torch_port: int, jax_port: int) -> None:
    """Every case of this rank."""
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{torch_port}", rank=rank, world_size=2
    )
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"127.0.0.1:{jax_port}", num_processes=2, process_id=rank, initialization_timeout=60
    )
    flat = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    for placement in (Shard(0), Shard(1), Replicate()):
        check(flat, [placement])
    check(flat, [Shard(0)], torch.bfloat16)

    two = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    for placements in ([Shard(0), Shard(1)], [Replicate(), Shard(0)], [Shard(0), Shard(0)]):
        check(two, placements)
    check(two, [_StridedShard(0, split_factor=2), Shard(0)])  # FSDP on top of tensor parallelism
    check(init_device_mesh("cpu", (2,)), [Shard(0)])  # a mesh without names

    uneven = distribute_tensor(torch.ones(7, 2), flat, [Shard(0)])
    with pytest.raises(ValueError, match=r"^dt: .*; pad the array, JAX cuts evenly only"):
        dtensor_to_jax(uneven)
    for part, why in (
        (torch.arange(12.0).view(3, 4).t(), r"its strides \(1, 4\) are not row-major"),
        (torch.arange(13.0)[1:], "its address is not a multiple of 64 bytes"),
        (torch.ones(3, dtype=torch.complex64).conj(), "its conjugate bit is set"),
    ):
        x = DTensor.from_local(part, flat, [Shard(0)])
        said = f"^dt: .* cannot be shared: {why}; .*, by (dt.clone.memory_format=torch.cont.*)$"
        with pytest.raises(BufferError, match=said):
            dtensor_to_jax(x)
        (shard,) = dtensor_to_jax(x.clone(memory_format=torch.contiguous_format)).addressable_shards
        assert np.array_equal(shard.data, part.resolve_conj())
    short = DTensor.from_local(
        torch.ones(3), flat, [Shard(0)], run_check=False, shape=(8,), stride=(1,)
    )
    with pytest.raises(ValueError, match=r"^dt: shape \(3,\); .* cuts \(8,\) into \(4,\): wanted"):
        dtensor_to_jax(short)
    even = dtensor_to_jax(distribute_tensor(torch.ones(4), flat, [Shard(0)]))
    with pytest.raises(ValueError, match=r"the array is on axes \('dp',\) over processes"):
        jax_to_dtensor(even, two)

    jax.distributed.shutdown()
    dist.destroy_process_group()
    print(f"rank {rank}: every case holds")  # noqa: T201 -- read by the test


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
