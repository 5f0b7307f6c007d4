"""Every collective of torch is counted by its model: bytes that this rank, 1 of 4, receives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.utils import _pytree as pytree

import xlayout as xl

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # some have new names


@pytest.fixture(scope="module", autouse=True)
def mesh() -> Iterator[DeviceMesh]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    yield init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    dist.destroy_process_group()


def some(n: int = 4) -> torch.Tensor:
    """`n` elements of 4 bytes."""
    return torch.ones(n)


def parts(*sizes: int) -> list[torch.Tensor]:
    return [some(n) for n in sizes]


def group() -> Any:
    return dist.group.WORLD


IN_PLACE: dict[str, tuple[Callable[[Any], Any], dict[str, int]]] = {
    "all_gather": (lambda x: dist.all_gather(parts(4, 4, 4, 4), x), {"all_gather": 48}),
    "all_gather_into_tensor": (
        lambda x: dist.all_gather_into_tensor(some(16), x), {"all_gather": 48}),
    "all_gather_coalesced": (
        lambda x: dist.all_gather_coalesced([parts(4, 8) for _ in range(4)], [x, some(8)]),
        {"all_gather": 48 + 96}),
    "allgather_into_tensor_coalesced": (
        lambda x: group().allgather_into_tensor_coalesced(parts(16, 32), [x, some(8)]),
        {"all_gather": 48 + 96}),
    "all_reduce": (dist.all_reduce, {"all_reduce": 24}),
    "all_reduce_coalesced": (
        lambda x: dist.all_reduce_coalesced([x, some(8)]), {"all_reduce": 24 + 48}),
    "all_to_all": (
        lambda x: dist.all_to_all(parts(1, 5, 2, 3), [*x.split(1)]), {"all_to_all": 4 * 6}),
    "all_to_all_single": (
        lambda x: dist.all_to_all_single(x, some()), {"all_to_all": 12}),
    "all_to_all_single, uneven": (
        lambda x: dist.all_to_all_single(some(11), x, [1, 5, 2, 3], [1] * 4),
        {"all_to_all": 4 * 6}),
    "all_to_all_single, nothing": (
        lambda x: dist.all_to_all_single(some(0), x, [0] * 4, [1] * 4), {}),
    "barrier": (lambda _: dist.barrier(), {}),
    "broadcast": (lambda x: dist.broadcast(x, 2), {"broadcast": 16}),
    "broadcast, of its own": (lambda x: dist.broadcast(x, 1), {}),
    "recv": (lambda x: dist.recv(x, 0), {"recv": 16}),
    "recv, from any": (lambda x: group().recv_anysource([x], 0), {"recv": 16}),
    "reduce_scatter": (
        lambda x: dist.reduce_scatter(x, parts(4, 4, 4, 4)), {"reduce_scatter": 48}),
    "reduce_scatter_tensor": (
        lambda x: dist.reduce_scatter_tensor(x, some(16)), {"reduce_scatter": 48}),
    "reduce_scatter_tensor_coalesced": (
        lambda x: group().reduce_scatter_tensor_coalesced([x, some(8)], parts(16, 32)),
        {"reduce_scatter": 48 + 96}),
    "scatter": (lambda x: dist.scatter(x, None, src=0), {"scatter": 16}),
    "scatter, of its own": (lambda x: dist.scatter(x, parts(4, 4, 4, 4), src=1), {}),
    "send": (lambda x: dist.send(x, 0), {}),
}  # fmt: skip


OPS = torch.ops._c10d_functional
FUNCTIONAL: dict[str, tuple[Callable[[Any, str], Any], dict[str, int]]] = {
    "all_gather_tensor": (
        lambda x, g: funcol.all_gather_tensor(x, 0, g), {"all_gather": 48}),
    "all_gather_into_tensor_coalesced": (
        lambda x, g: funcol.all_gather_into_tensor_coalesced([x, some(8)], g),
        {"all_gather": 48 + 96}),
    "all_gather_into_tensor_out": (
        lambda x, g: OPS.all_gather_into_tensor_out(x, 4, g, out=some(16)), {"all_gather": 48}),
    "all_reduce": (lambda x, g: funcol.all_reduce(x, "sum", g), {"all_reduce": 24}),
    "all_reduce_": (lambda x, g: OPS.all_reduce_(x, "sum", g), {"all_reduce": 24}),
    "all_reduce_coalesced": (
        lambda x, g: funcol.all_reduce_coalesced([x, some(8)], "sum", g), {"all_reduce": 24 + 48}),
    "all_reduce_coalesced_": (
        lambda x, g: OPS.all_reduce_coalesced_([x, some(8)], "sum", g), {"all_reduce": 24 + 48}),
    "all_to_all_single": (
        lambda x, g: funcol.all_to_all_single(x, [1, 5, 2, 3], [1] * 4, g),
        {"all_to_all": 4 * 6}),
    "all_to_all_single, even": (
        lambda x, g: funcol.all_to_all_single(x, None, None, g), {"all_to_all": 12}),
    "broadcast": (lambda x, g: funcol.broadcast(x, 2, g), {"broadcast": 16}),
    "broadcast, of its own": (lambda x, g: OPS.broadcast_(x, 1, g), {}),
    "reduce_scatter_tensor": (
        lambda _, g: funcol.reduce_scatter_tensor(some(16), "sum", 0, g), {"reduce_scatter": 48}),
    "reduce_scatter_tensor_coalesced": (
        lambda _, g: funcol.reduce_scatter_tensor_coalesced(parts(16, 32), "sum", [0, 0], g),
        {"reduce_scatter": 48 + 96}),
    "irecv": (lambda x, g: OPS.irecv(x, 0, 0, g), {"recv": 16}),
    "isend": (lambda x, g: OPS.isend(x, 0, 0, g), {}),
    "shard_dim_alltoall": (
        lambda _, g: torch.ops._dtensor.shard_dim_alltoall(some(32).view(4, 8), 0, 1, g),
        {"all_to_all": 128 * 3 // 4}),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_collective_that_writes_into_tensors_is_counted(name: str) -> None:
    call, wanted = IN_PLACE[name]
    assert xl.wire_bytes(call, some()) == wanted


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_a_collective_that_makes_tensors_is_counted(name: str) -> None:
    call, wanted = FUNCTIONAL[name]

    def use(x: torch.Tensor) -> None:
        pytree.tree_map(OPS.wait_tensor, call(x, group().group_name))

    assert xl.wire_bytes(use, some()) == wanted


def test_what_dtensor_sends_is_counted(mesh: DeviceMesh) -> None:
    x = DTensor.from_local(torch.ones(2, 8), mesh, [Shard(0)])
    assert xl.wire_bytes(lambda x: x.full_tensor() + 0, x) == {"all_gather": 3 * 2 * 8 * 4}


def test_over_a_transport_other_than_gloo_an_exchange_is_one_collective(mesh: DeviceMesh) -> None:
    x = DTensor.from_local(torch.ones(2, 8), mesh, [Shard(0)])
    assert xl.wire_bytes(lambda x: xl.reshard(x, [Shard(1)]), x) == {"all_to_all": 3 * 2 * 2 * 4}
    assert xl.wire_bytes(xl.all_gather, x) == {"all_gather": 3 * 2 * 8 * 4}


def test_several_of_a_kind_are_added_up() -> None:
    def twice(x: torch.Tensor) -> None:
        dist.all_reduce(x)
        dist.all_reduce(x)
        dist.broadcast(x, 0)

    assert xl.wire_bytes(twice, some()) == {"all_reduce": 48, "broadcast": 16}
