"""Tiles that are sharded themselves: they run, and are loaded and saved in their placements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

from tests.layers.whole import dense, whole
from xlayout.torch import TiledLinear

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about a group of one process


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def sharded(mesh: DeviceMesh, how: str) -> TiledLinear:
    tiled = TiledLinear(12, 8, in_splits=3, out_splits=2, dtype=torch.float64)
    tiles = {n: m for n, m in tiled.named_modules() if isinstance(m, nn.Linear)}
    if how == "rows":
        parallelize_module(tiled, mesh, {name: RowwiseParallel() for name in tiles})
    for tile in tiles.values() if how == "fsdp" else ():
        fully_shard(tile, mesh=mesh)
    return tiled


@pytest.mark.parametrize("how", ["fsdp", "rows"])
def test_they_are_copied_to_and_from(mesh: DeviceMesh, how: str) -> None:
    of, tiled = dense(12, 8), sharded(mesh, how)
    tiled.copy_params_from(of)
    held: Any = tiled.linears[0][0].weight  # type: ignore[index]
    assert isinstance(held, DTensor)
    assert held.placements == (Shard(0 if how == "fsdp" else 1),)
    assert torch.equal(tiled(whole(2, 12)), of(whole(2, 12)))
    back = tiled.to_linear()
    assert type(back.weight) is nn.Parameter
    assert torch.equal(back.weight, of.weight)
    assert torch.equal(back.bias, of.bias)
