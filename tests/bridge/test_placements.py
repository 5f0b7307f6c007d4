"""DTensors and sharded jax.Arrays turn into one another if both can say how the shards lie."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch
from jax.experimental.layout import Format, Layout
from jax.sharding import NamedSharding, PartitionSpec
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

from xlayout.bridge import dtensor_to_jax, jax_to_dtensor, jax_to_shards


def test_a_dtensor_of_one_rank_needs_one_jax_device(one_rank: Any) -> None:
    x = distribute_tensor(torch.ones(4), one_rank, [Shard(0)])
    with pytest.raises(ValueError, match="8 JAX devices in 1 processes; wanted one a process"):
        dtensor_to_jax(x)


def test_a_dtensor_never_loses_its_gradient(one_rank: Any) -> None:
    x = distribute_tensor(torch.ones(4, requires_grad=True), one_rank, [Shard(0)])
    with pytest.raises(TypeError, match=r"dt: requires grad, .*; pass dt.detach\(\)"):
        dtensor_to_jax(x)
    with pytest.raises(TypeError, match=r"dt: expected a DTensor, got torch.Tensor"):
        dtensor_to_jax(torch.ones(3))


def test_only_a_jax_array_becomes_a_dtensor_and_only_on_torchs_mesh(one_rank: Any) -> None:
    with pytest.raises(TypeError, match=r"a: torch.Tensor; wanted a jax.Array"):
        jax_to_dtensor(torch.ones(3), one_rank)
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("tp",))
    a = jax.device_put(jax.numpy.ones(16), NamedSharding(mesh, PartitionSpec("tp")))
    with pytest.raises(TypeError, match="device_mesh: Mesh; wanted a DeviceMesh"):
        jax_to_dtensor(a, mesh)


def test_a_dtensor_has_its_axes_in_the_order_in_which_they_lie_in_memory(one_rank: Any) -> None:
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("dp",))
    columns = Format(Layout((1, 0)), NamedSharding(mesh, PartitionSpec("dp")))
    x = jax_to_dtensor(jax.device_put(jax.numpy.arange(6.0).reshape(2, 3), columns), one_rank)
    assert (x.stride(), x.to_local().stride()) == ((1, 2), (1, 2))
    assert x.reshape(6).to_local().tolist() == [0, 1, 2, 3, 4, 5]


def test_what_is_refused_is_named(one_rank: Any) -> None:
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("dp",))
    a = jax.device_put(jax.numpy.ones(2, "int4"), NamedSharding(mesh, PartitionSpec("dp")))
    for exchange in (jax_to_shards, lambda a: jax_to_dtensor(a, one_rank)):
        with pytest.raises(TypeError, match=r"^a: jax.Array int4\[2\]: .*; cast it to int8, or "):
            exchange(a)
        with pytest.raises(
            TypeError, match=r"^a: float8_e3m4 has no torch equivalent; cast it, or"
        ):
            exchange(a.astype("float8_e3m4"))
    x = DTensor.from_local(torch.ones(4, device="meta"), one_rank, [Shard(0)])
    with pytest.raises(TypeError, match=r"^dt: Tensor float32\[4\] on meta has no memory on cpu"):
        dtensor_to_jax(x)


def test_partial_sums_are_refused_before_anything_is_shared(one_rank: Any) -> None:
    x = DTensor.from_local(torch.ones(4), one_rank, [Partial()])
    with pytest.raises(ValueError, match=r"^dt: .*; its sums are not done, redistribute it"):
        dtensor_to_jax(x)
