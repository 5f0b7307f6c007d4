"""What the ranks of a pool are asked to compile and run."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.shard.compilers import Aot, Inductor
from tests.shard.fsdp import WIDTH, Fsdp, collectives
from xlayout.torch import CastBeforeGather


def trained(rank: int) -> tuple[dict[str, bool], dict[str, int]]:
    """Whether loss and gradients equal eager mode's; the bytes that are gathered, by compiler."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(rank)).to(torch.bfloat16)
    wanted = _step(Fsdp(mesh), x)
    backends: dict[str, Any] = {
        "eager": Aot(),  # the same graph, as it was traced
        "aot": Aot(CastBeforeGather()),
        "inductor": Inductor(
            joint_custom_post_pass=CastBeforeGather(), emulate_precision_casts=True
        ),
        "inductor, merged": Inductor(
            post_grad_custom_pre_pass=CastBeforeGather(), bucket_all_gathers_fx="all",
            emulate_precision_casts=True,
        ),
    }  # fmt: skip
    same, counted = {}, {}
    for name, backend in backends.items():
        torch._dynamo.reset()
        model = Fsdp(mesh)
        got = _step(torch.compile(model, backend=backend, fullgraph=True), x, model)
        same[name] = all(map(torch.equal, wanted, got))
        counted[name] = sum(
            size * dtype.itemsize
            for kind, dtype, size in collectives(backend.graphs)
            if kind == "all_gather_into"
        )
    assert same.pop("eager")
    return same, counted


def _step(run: Any, x: torch.Tensor, model: Any = None) -> list[torch.Tensor]:
    """The loss, and this rank's part of each gradient."""
    loss = run(x)
    loss.backward()
    return [loss.detach(), *(p.grad.to_local() for p in (model or run).weights)]
