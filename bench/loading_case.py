"""One step of bench/loading.py: make a DCP, or load it as one of the ranks."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from bench.child import bytes_read
from bench.porting_case import shapes
from xlayout import Mesh, port
from xlayout.rss import peak_rss

SHAPE, AXES = (2, 2), ("fsdp", "tp")
HOW = ("whole", "cut")


def model(layers: int) -> nn.Module:
    """The modules of the Llama, without memory."""
    root = nn.Module()
    for name, shape in shapes(layers).items():
        *path, last, _ = name.split(".")
        home = root
        for part in path:
            home.add_module(part, getattr(home, part, None) or nn.Module())
            home = getattr(home, part)
        home.add_module(last, layer(last, shape))
    return root


def layer(name: str, shape: tuple[int, ...]) -> nn.Module:
    """A module with one weight of this shape."""
    with torch.device("meta"):
        if len(shape) == 1:
            return nn.RMSNorm(shape[0], dtype=torch.bfloat16)
        if name == "embed_tokens":
            return nn.Embedding(*shape, dtype=torch.bfloat16)
        return nn.Linear(shape[1], shape[0], bias=False, dtype=torch.bfloat16)


def style(name: str) -> ColwiseParallel | RowwiseParallel:
    """How a layer is shared by the ranks of tensor parallelism."""
    if name.endswith("embed_tokens"):
        return RowwiseParallel(input_layouts=Replicate())
    return RowwiseParallel() if name.endswith(("o_proj", "down_proj")) else ColwiseParallel()


def spread(layers: int) -> dict[str, Any]:
    """The state dict of one rank, in memory that is there."""
    mesh = init_device_mesh("cpu", SHAPE, mesh_dim_names=AXES)
    root = model(layers)
    cut = [name for name, m in root.named_modules() if isinstance(m, (nn.Linear, nn.Embedding))]
    parallelize_module(root, mesh["tp"], {name: style(name) for name in cut})
    for number in range(layers):
        fully_shard(root.get_submodule(f"model.layers.{number}"), mesh=mesh["fsdp"])
    fully_shard(root, mesh=mesh["fsdp"])
    root.to_empty(device="cpu")
    state: dict[str, Any] = root.state_dict()
    for tensor in state.values():
        tensor.to_local().zero_()
    return state


def loaded(path: Path, hf: Path) -> dict[str, float]:
    """Load a DCP, and compare it with the tensors that it was made from."""
    state = spread(json.loads((hf / "config.json").read_text())["num_hidden_layers"])
    norm = "model.norm.weight"
    dcp.load({norm: state[norm]}, checkpoint_id=path)  # imports what the others need
    dist.barrier()
    before, held, start = bytes_read(), peak_rss(), perf_counter()
    dcp.load(state, checkpoint_id=path)
    dist.barrier()
    found = {
        "seconds": perf_counter() - start,
        "read": bytes_read() - before,
        "peak": peak_rss() - held,
        "bytes": sum(tensor.to_local().nbytes for tensor in state.values()),
    }
    with safe_open(hf / "model.safetensors", "pt") as file:
        for name, tensor in state.items():
            assert tensor.full_tensor().equal(file.get_tensor(name)), name
    return found


def main(step: str, *arguments: str) -> None:
    """Carry out one step, and print what it found as JSON."""
    found: dict[str, float] = {}
    if step == "port":
        how, source, out = arguments
        mesh = Mesh(SHAPE, AXES) if how == "cut" else None
        found["seconds"] = port.run(source, out, to="dcp", mesh=mesh, verify=False).seconds
    else:
        rank, ranks, meeting, path, hf = arguments
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=int(ranks)
        )
        found = loaded(Path(path), Path(hf))
        dist.destroy_process_group()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
