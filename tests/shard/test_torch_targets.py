"""Unless a caller asks for others, results are DTensors under placements that torch reads rightly.

`full_tensor` of torch 2.13 mixes up the parts of the others, or fails on some ranks alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import xlayout as xl
from xlayout import Mesh, Sharding, Split
from xlayout.errors import ShardingError

PLAIN = (Shard(0), Shard(0), Shard(0))
SEGMENTS = {0: Split(segments=2)}
TURNED = (_StridedShard(0, split_factor=4), Shard(0), Shard(0))


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("a", "b", "c"))
    dist.destroy_process_group()


def halves(mesh: DeviceMesh, size: int) -> DTensor:
    """As many numbers, at most one on a rank."""
    return DTensor.from_local(torch.ones(1), mesh, PLAIN, shape=(size,), stride=(1,))


def test_equal_parts_may_lie_in_another_order_than_the_ranks(mesh: DeviceMesh) -> None:
    assert xl.rope_pairs(halves(mesh, 8), heads=1).placements == TURNED


def test_unequal_parts_may_not(mesh: DeviceMesh) -> None:
    x = halves(mesh, 6)
    assert xl.rope_pairs(x, heads=1).placements == PLAIN
    with pytest.raises(ShardingError, match="comm: 'local', but something would have to move"):
        xl.rope_pairs(x, heads=1, comm="local")


def test_they_may_if_a_caller_asks(mesh: DeviceMesh) -> None:
    made = xl.rope_pairs(halves(mesh, 6), heads=1, comm="local", out_sharding=TURNED)
    assert made.placements == TURNED
    assert made.to_local().tolist() == [1]


def test_nor_may_segments_that_several_mesh_axes_cut(mesh: DeviceMesh) -> None:
    x = DTensor.from_local(torch.ones(2), mesh, PLAIN)  # which would be even
    assert xl.deinterleave(x).placements == PLAIN
    fused = Sharding(Mesh((2, 2, 2), ("a", "b", "c")), (("a", "b", "c"),), splits=SEGMENTS)
    assert xl.deinterleave(x, comm="local", out_sharding=fused).placements == fused.to_torch(mesh)
