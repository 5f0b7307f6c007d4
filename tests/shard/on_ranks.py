"""What the ranks of a pool are asked to do."""

from __future__ import annotations

import os
import signal
import time
import warnings
from datetime import timedelta
from functools import lru_cache
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from xlayout import Layout
from xlayout.shard import Mesh, Sharding
from xlayout.shard.execute import all_gather, reshard
from xlayout.shard.plan import plan_reshard
from xlayout.shard.ranks import run_part
from xlayout.shard.sharded import run_sharded
from xlayout.shard.wire import wire_bytes
from xlayout_torch import pairs, transport


@lru_cache
def device_mesh(mesh: Mesh, order: tuple[int, ...] | None = None) -> DeviceMesh:
    ranks = torch.tensor(order or range(mesh.size)).reshape(mesh.shape)
    return DeviceMesh("cpu", ranks, mesh_dim_names=mesh.names)


def position(rank: int, order: tuple[int, ...] | None) -> int:
    return rank if order is None else order.index(rank)


def dtensor(
    rank: int, x: np.ndarray, sharding: Sharding, order: tuple[int, ...] | None = None
) -> DTensor:
    mesh = device_mesh(sharding.mesh, order)
    whole = torch.from_numpy(x)
    return DTensor.from_local(
        sharding.layout(position(rank, order), x.shape)(whole),
        mesh,
        sharding.to_torch(mesh),
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )


def resharded(
    rank: int,
    x: np.ndarray,
    src: Sharding,
    dst: Any,
    layout: Layout | None,
    dtype: str | None,
    order: tuple[int, ...] | None,
) -> tuple[int, Any, tuple[int, ...], tuple[Any, ...]]:
    y = reshard(dtensor(rank, x, src, order), dst, layout=layout, dtype=dtype)
    local = y.to_local()
    assert y.stride() == torch.empty(y.shape).stride()
    if local.dtype not in (torch.float32, torch.int64):
        local = local.float()
    return position(rank, order), local.numpy(), tuple(y.shape), tuple(map(str, y.placements))


def gradients(rank: int, x: np.ndarray, src: Sharding, dst: Sharding, layout: Layout) -> Any:
    leaf = dtensor(rank, x, src).requires_grad_()
    (g,) = torch.autograd.grad(
        (reshard(leaf, dst, layout=layout).to_local() ** 2).sum(), leaf, create_graph=True
    )
    (gg,) = torch.autograd.grad((g.to_local() * 3).sum(), leaf)
    return g.to_local().detach().numpy(), gg.to_local().numpy()


def plain(rank: int, x: np.ndarray, src: Sharding, dst: Sharding, layout: Layout) -> np.ndarray:
    plan = plan_reshard(layout, src, dst)
    (made,) = run_part(plan, [torch.from_numpy(src.layout(rank, x.shape)(x))], rank)
    found: np.ndarray = made.numpy()
    return found


def gathered(
    rank: int, x: np.ndarray, src: Sharding, mesh_axis: str | None, dtype: str
) -> tuple[np.ndarray, np.ndarray, str, str]:
    """What a gather returns, and the gradient of a loss that every rank weights differently."""
    leaf = dtensor(rank, x, src).requires_grad_()
    full = all_gather(leaf, mesh_axis=mesh_axis, dtype=dtype)
    local = full.to_local(grad_placements=[partial(p) for p in full.placements])
    (local.float() * (rank + 1)).sum().backward()
    assert leaf.grad is not None
    grad = leaf.grad.to_local()
    return local.detach().float().numpy(), grad.numpy(), str(full.dtype), str(grad.dtype)


def partial(placement: Any) -> Any:
    return Partial() if placement.is_replicate() else placement


def fails(rank: int) -> None:
    if rank == 1:
        raise ValueError("rank 1 has had enough")


def counted(
    rank: int, x: np.ndarray, src: Sharding, dst: Sharding, layout: Layout, dtype: str | None
) -> dict[str, int]:
    leaf = dtensor(rank, x, src)
    return wire_bytes(lambda x: reshard(x, dst, layout=layout, dtype=dtype), leaf)


def counted_gather(rank: int, x: np.ndarray, src: Sharding, dtype: str) -> dict[str, int]:
    """The bytes of a gather and its backward pass, with gradients from every rank."""
    leaf = dtensor(rank, x, src).requires_grad_()

    def step(leaf: Any) -> None:
        full = all_gather(leaf, dtype=dtype)
        full.to_local(grad_placements=[partial(p) for p in full.placements]).sum().backward()

    return wire_bytes(step, leaf)


def counted_plain(rank: int) -> dict[str, int]:
    """The bytes of torch.distributed's own collectives."""
    x, whole, parts = torch.ones(4), torch.ones(16), [torch.ones(4) for _ in range(4)]

    def step(x: torch.Tensor) -> None:
        dist.all_reduce(x)
        dist.all_gather_into_tensor(whole, x)
        dist.all_gather(parts, x)
        dist.all_to_all_single(torch.empty(4), x)
        dist.broadcast(x, 2)
        dist.scatter(torch.empty(4), parts if rank == 1 else None, src=1)
        dist.reduce_scatter_tensor(torch.empty(4), whole)
        dist.barrier()
        if rank == 0:
            dist.send(x, 1)
        if rank == 1:
            dist.recv(x, 0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # all_gather_into_tensor has a new name
        return wire_bytes(step, x)


def uncounted(_rank: int) -> str:
    """The error for a collective whose bytes are not known."""
    try:
        wire_bytes(lambda x: dist.reduce(x, 0), torch.ones(4))
    except TypeError as error:
        return str(error)
    return "nothing"


def ran(rank: int, x: np.ndarray, src: Sharding, layout: Layout, comm: Any) -> tuple[Any, Any]:
    y = run_sharded(layout, [dtensor(rank, x, src)], comm=comm)
    return Sharding.from_torch(y.device_mesh, y.placements, y.ndim), y.to_local().numpy()


def meets(rank: int, src: Sharding, dst: Sharding) -> None:
    """An exchange with all ranks present, so that all are connected."""
    reshard(dtensor(rank, np.ones((8, 8), np.float32), src), dst)


def meets_without(rank: int, why: str, what: str, src: Sharding, dst: Sharding) -> str:
    """The same without rank 2; returns the error that the others get."""
    leaf = dtensor(rank, np.ones((8, 8), np.float32), src).requires_grad_()
    made = all_gather(leaf) if what.startswith("gradient") else leaf
    _leave(rank, why)
    if rank == 2 or (rank == 3 and what == "reshard without rank 3"):
        return ""
    try:
        if what.startswith("reshard"):
            reshard(leaf, dst)
        elif what == "gather":
            all_gather(leaf)
        else:
            made.to_local(grad_placements=[Partial()]).sum().backward()
    except TimeoutError as error:
        return str(error)
    return "nothing"


@lru_cache
def _patient(seconds: int) -> DeviceMesh:
    """A mesh of a group that has a timeout of its own."""
    group = dist.new_group(timeout=timedelta(seconds=seconds))
    return DeviceMesh.from_group(group, "cpu", mesh_dim_names=("tp",))


def meets_in_a_group(rank: int, seconds: int, why: str) -> str:
    """The same on such a mesh."""
    leaf = DTensor.from_local(torch.ones(2, 8), _patient(seconds), [Shard(0)])
    _leave(rank, why)
    try:
        reshard(leaf, [Shard(1)])
    except TimeoutError as error:
        return str(error)
    return "nothing"


def hears_first(rank: int) -> str:
    """Rank 2 sends the others what they need, and is killed before it has anything from them."""
    group, others = dist.group.WORLD, [r for r in range(4) if r != rank]
    parts = {r: torch.ones(1 << 20) for r in others}
    if rank == 2:
        pairs.swap(parts, {}, group)
    _leave(rank, "killed")
    try:
        pairs.swap(parts, {r: torch.empty(1 << 20) for r in others}, group)
    except TimeoutError as error:
        return str(error)
    return "nothing"


def meets_in_pairs(rank: int, layout: Layout, halves: Sharding) -> str:
    """Ranks 0 and 1 exchange, and so do ranks 2 and 3, one of which is gone."""
    leaf = dtensor(rank, np.arange(8.0), halves)
    _leave(rank, "killed")
    try:
        reshard(leaf, halves, layout=layout)
    except TimeoutError as error:
        return str(error)
    return "fine"


def apart(rank: int, how: str, order: Any) -> tuple[list[Any], float]:
    """What two ranks exchange on a mesh of their own, and how many then meet in a new group."""
    mesh, found = DeviceMesh("cpu", order), []
    ranks = mesh.mesh.flatten().tolist()
    dist.new_group(ranks[:1])  # one of the two is in more groups than the other
    if rank in ranks:
        at, copies = 2 * ranks.index(rank), [Replicate()] * (mesh.ndim - 1)
        part = torch.arange(4.0)[at : at + 2]
        x = DTensor.from_local(part, mesh, [Shard(0), *copies], run_check=False)
        asked = transport._in_pairs if how == "in pairs" else lambda *_: False
        torch._dynamo.reset()

        @torch.compile(fullgraph=True, backend="aot_eager", disable=how != "compiled")
        def run(x: Any) -> Any:
            return reshard(x, [Replicate(), *copies]), all_gather(x)

        with mock.patch.object(transport, "_in_pairs", asked):
            found = [y.to_local().tolist() for y in run(x)]
    count = torch.ones(())
    dist.all_reduce(count, group=dist.new_group())
    return found, count.item()


def known(rank: int, ranks: tuple[int, int]) -> Any:
    """What torch knows of the group of two ranks that an exchange makes: its ranks, and its own."""
    if rank not in ranks:
        return None
    group = transport._group_of(dist.group.WORLD, ranks)
    return dist.get_process_group_ranks(group), dist.get_group_rank(group, rank), group.rank()


def lying_anyhow(rank: int) -> tuple[list[Any], list[Any]]:
    """The sum and the stack of one matrix of all ranks, which has columns in memory on two."""
    group, x = dist.group.WORLD, torch.arange(6.0).reshape(2, 3)
    x = x if rank % 2 else x.T.contiguous().T
    made = transport.total(x, group.group_name), transport.stacked(x, group.group_name, 4)
    return made[0].tolist(), made[1].tolist()


def beside_a_message(rank: int, x: np.ndarray, src: Sharding, dst: Sharding) -> bool:
    """Whether an exchange is right, and so is a message of the program that is on its way."""
    sent = dist.isend(torch.full((2,), 7.0), 1) if rank == 0 else None
    found = reshard(dtensor(rank, x, src), dst).to_local().numpy()
    came = torch.zeros(2)
    if rank == 1:
        dist.recv(came, 0)
    if sent is not None:
        sent.wait()
    right = np.array_equal(found, dst.layout(rank, x.shape)(x))
    return right and came.tolist() == [7.0 * (rank == 1)] * 2


def _leave(rank: int, why: str) -> None:
    if why == "two killed meanwhile":  # while the others wait for them
        if rank in (2, 3):
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return
    if rank == 2 and why == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if why == "killed":
        time.sleep(0.2)  # until its end has been noticed
