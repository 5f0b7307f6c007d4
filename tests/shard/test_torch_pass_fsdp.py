"""Four layers under FSDP: four wide gathers become narrow, and one where inductor merges them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tests.shard import on_ranks_compiled
from tests.shard.compilers import Aot, Inductor
from tests.shard.fsdp import WIDTH, Fsdp, collectives
from tests.shard.pool import Pool
from xlayout.torch import CastBeforeGather

# Inductor is imported at first use, and that import raises warnings.
pytestmark = [
    pytest.mark.usefixtures("no_graph_of_another_test"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script"),
]

RANKS, LAYERS = 8, 4
SIZE = WIDTH * WIDTH
HOOKS = ("joint_custom_pre_pass", "joint_custom_post_pass",
         "post_grad_custom_pre_pass", "post_grad_custom_post_pass")  # fmt: skip
WIDE, NARROW = torch.float32, torch.bfloat16


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",))
    dist.destroy_process_group()


def train(mesh: DeviceMesh, backend: Any) -> list[tuple[str, torch.dtype, int]]:
    """The collectives of a step, forward and backward."""
    model = torch.compile(Fsdp(mesh, LAYERS), backend=backend, fullgraph=True)
    model(torch.ones(4, WIDTH, dtype=NARROW)).backward()
    return collectives(backend.graphs)


def gathers(dtype: torch.dtype, times: int = LAYERS, size: int = SIZE) -> list[Any]:
    return [("all_gather_into", dtype, size)] * times


SUMS = [("reduce_scatter", WIDE, SIZE // RANKS)] * LAYERS


@pytest.mark.parametrize("bucket", ["none", "all"])
def test_inductor_alone_gathers_wide(mesh: DeviceMesh, bucket: str) -> None:
    found = train(mesh, Inductor(bucket_all_gathers_fx=bucket))
    merged = gathers(WIDE, 1, LAYERS * SIZE)
    assert found == (gathers(WIDE) if bucket == "none" else merged) + SUMS


@pytest.mark.parametrize("hook", HOOKS)
def test_the_pass_narrows_them_at_each_hook_of_inductor(mesh: DeviceMesh, hook: str) -> None:
    assert train(mesh, Inductor(**{hook: CastBeforeGather()})) == gathers(NARROW) + SUMS


@pytest.mark.parametrize("hook", HOOKS)
def test_inductor_merges_the_narrow_ones(mesh: DeviceMesh, hook: str) -> None:
    backend = Inductor(bucket_all_gathers_fx="all", **{hook: CastBeforeGather()})
    assert train(mesh, backend) == gathers(NARROW, 1, LAYERS * SIZE) + SUMS


def test_the_pass_narrows_them_in_a_backend_of_ones_own(mesh: DeviceMesh) -> None:
    cast = CastBeforeGather()
    assert train(mesh, Aot(cast)) == gathers(NARROW) + SUMS
    assert [v.dtype for v in cast.verdicts] == [NARROW] * LAYERS


@pytest.mark.distributed
def test_loss_and_gradients_are_those_of_eager_mode_to_the_bit() -> None:
    pool = Pool(2)
    try:
        for same, counted in pool(on_ranks_compiled.trained):
            assert same == {"aot": True, "inductor": True, "inductor, merged": True}
            wide = counted.pop("as it was traced")
            assert set(counted.values()) == {wide // 2}
    finally:
        pool.close()


@pytest.mark.slow
def test_the_code_that_inductor_writes_gathers_narrow(mesh: DeviceMesh) -> None:
    from torch._inductor import config
    from torch._inductor.utils import run_and_get_code

    with config.patch(joint_custom_post_pass=CastBeforeGather(), fx_graph_cache=False):
        model = torch.compile(Fsdp(mesh, LAYERS), fullgraph=True)
        _, (code, *_) = run_and_get_code(model, torch.ones(4, WIDTH, dtype=NARROW))
    assert code.count("= torch.ops._c10d_functional.all_gather_into_tensor.default(buf") == LAYERS
