"""Bytes that a device receives while a layout takes an array from one sharding to another.

XLA's are read off the program that it compiles. DTensor's are counted as its collectives are
called, on a mesh of tensors without memory in a group without other ranks: over gloo it would
gather and cut where over NCCL it exchanges.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from tests.devices import request_host_devices

request_host_devices()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA warns about reshards that it does badly

import logging  # noqa: E402 -- JAX reads the environment once

import jax  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.distributed.tensor import _redistribute as redistribute  # noqa: E402

import xlayout as xl  # noqa: E402
from xlayout.errors import ShardingError  # noqa: E402
from xlayout.shard.sharded import run_sharded  # noqa: E402

__all__ = ["CONTENDERS", "bound"]

RANKS = 8
ITEMSIZE = 4
Case = tuple[xl.Layout, xl.Sharding, xl.Sharding]


def bound(case: Case) -> float:
    """What a device needs afterwards and does not hold before, on average."""
    plan = xl.plan_reshard(*case, itemsize=ITEMSIZE)
    return sum(plan.lower_bound) / plan.ranks


def ours(case: Case) -> float | None:
    """What the messages of a plan carry."""
    plan = xl.plan_reshard(*case, itemsize=ITEMSIZE)
    return sum(plan.recv_bytes) / plan.ranks


def ours_in_jax(case: Case) -> float | None:
    """The same in rounds of equal size, padding included; None if JAX cannot express a sharding."""
    if _shardings(case) is None:
        return None
    plan = xl.plan_reshard(*case, itemsize=ITEMSIZE)
    padding = sum(r.padding for r in plan.rounds) * ITEMSIZE
    return (sum(plan.recv_bytes) + padding) / plan.ranks


def xla(case: Case) -> float | None:
    """The layout under jit, with the result's sharding given."""
    ends = _shardings(case)
    if ends is None:
        return None
    layout, (source, target) = case[0], ends
    try:
        xs = [jax.device_put(jax.numpy.zeros(shape, "float32"), source)
              for shape in layout.in_shapes]  # fmt: skip
    except ValueError:  # a size that is not divisible
        return None
    run = jax.jit(lambda *xs: layout(*xs), out_shardings=target)
    try:
        return float(sum(xl.wire_bytes(run, *xs).values()))
    except ValueError:
        return None


def _shardings(case: Case) -> tuple[Any, Any] | None:
    mesh = case[1].mesh
    kinds = (jax.sharding.AxisType.Auto,) * len(mesh.shape)
    devices = jax.make_mesh(mesh.shape, mesh.names, kinds, devices=jax.devices()[: mesh.size])
    try:
        return case[1].to_jax(devices), case[2].to_jax(devices)
    except ShardingError:
        return None


def greedy(case: Case) -> float | None:
    """DTensor's ops, then `redistribute` as it is."""
    return _dtensor(case, least=False)


def least_cost(case: Case) -> float | None:
    """The same with DTensor's planner that searches for the cheapest way."""
    return _dtensor(case, least=True)


def _dtensor(case: Case, *, least: bool) -> float | None:
    layout, src, dst = case
    redistribute._gen_transform_infos.cache_clear()  # it holds the other planner's answers
    try:
        mesh = _mesh(src.mesh)
        xs = [_without_memory(src, shape, mesh) for shape in layout.in_shapes]
        with redistribute.use_min_cost_redistribution_plan(enabled=least):
            counted = xl.wire_bytes(
                lambda *xs: run_sharded(layout, xs, comm="native", out_sharding=dst), *xs
            )
    except (ShardingError, RuntimeError, NotImplementedError):
        return None  # DTensor has no way: the table shows a gap there
    return float(sum(counted.values()))


@cache
def _mesh(mesh: xl.Mesh) -> DeviceMesh:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not dist.is_initialized():
        logging.getLogger("torch").setLevel(logging.ERROR)
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
        # The planner asks how many devices a host has, which a mesh without devices does not know.
        _mesh_resources.num_devices_per_host = lambda *_: RANKS  # type: ignore[method-assign]
    ranks = torch.arange(mesh.size).reshape(mesh.shape)
    return DeviceMesh("meta", ranks, mesh_dim_names=mesh.names)


def _without_memory(src: xl.Sharding, shape: tuple[int, ...], mesh: DeviceMesh) -> DTensor:
    whole = torch.empty(shape, device="meta")
    part = torch.empty(src.local_shape(0, shape), device="meta")
    return DTensor.from_local(
        part, mesh, src.to_torch(mesh), run_check=False, shape=whole.shape, stride=whole.stride()
    )


CONTENDERS = {
    "xlayout": ours,
    "xlayout in JAX": ours_in_jax,
    "XLA": xla,
    "DTensor": greedy,
    "DTensor, min-cost": least_cost,
}
