"""A model under FSDP as a graph compiler sees it: every parameter gathered where it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

__all__ = ["Fsdp", "collectives"]

WIDTH = 16


class Fsdp(torch.nn.Module):
    """Layers in bfloat16 whose parameters are kept in float32, an equal part on each rank."""

    def __init__(self, mesh: DeviceMesh, layers: int = 4) -> None:
        super().__init__()
        self.mesh = mesh
        generator = torch.Generator().manual_seed(0)
        wholes = [torch.randn(WIDTH, WIDTH, generator=generator) / 4 for _ in range(layers)]
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(distribute_tensor(w, mesh, [Shard(k % 2)], src_data_rank=None))
            for k, w in enumerate(wholes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            whole: Any = weight.redistribute(self.mesh, [Replicate()])
            x = torch.relu(x @ whole.to_local(grad_placements=[Partial()]).to(torch.bfloat16))
        return x.float().square().sum()


def collectives(graphs: Sequence[torch.fx.GraphModule]) -> list[tuple[str, torch.dtype, int]]:
    """(name, dtype, elements made) of every collective, in order."""
    return [
        (n.target._opname.removesuffix("_tensor_out").removesuffix("_tensor"),
         n.meta["val"].dtype, n.meta["val"].numel())
        for graph in graphs
        for n in graph.graph.nodes
        if getattr(n.target, "namespace", "") == "_c10d_functional"
        and n.target._opname != "wait_tensor"
    ]  # fmt: skip
