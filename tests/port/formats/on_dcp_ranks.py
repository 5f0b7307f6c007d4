"""What the ranks of a pool do with directories of torch.distributed.checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor

__all__ = ["WIDTHS", "load_dtensors", "save_dtensors", "save_fsdp", "wholes"]

SHAPES = {
    "even": (4, 6),
    "uneven": (7, 5),
    "short": (1, 3),
    "flat": (9,),
    "empty": (0, 4),
    "cube": (3, 5, 2),
}
WIDTHS = (5, 3)


def wholes() -> dict[str, torch.Tensor]:
    """The whole tensors, the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator).to(torch.bfloat16)
        for name, shape in SHAPES.items()
    }


def placements(shape: tuple[int, ...], axes: int) -> list[list[Placement]]:
    """Every way to cut or copy a tensor along the axes of a mesh."""
    ways: list[list[Placement]] = [[]]
    for _ in range(axes):
        ways = [
            [*way, one] for way in ways for one in (Replicate(), *map(Shard, range(len(shape))))
        ]
    return ways


def _dtensors(mesh_shape: tuple[int, ...]) -> dict[str, DTensor]:
    mesh = init_device_mesh("cpu", mesh_shape)
    return {
        f"{name}/{number}": distribute_tensor(whole, mesh, way, src_data_rank=None)
        for name, whole in wholes().items()
        for number, way in enumerate(placements(tuple(whole.shape), len(mesh_shape)))
    }


def save_dtensors(rank: int, path: Path, mesh_shape: tuple[int, ...], form: str) -> None:
    """Save every tensor under all placements, and objects that are on all ranks or on none."""
    state = {**_dtensors(mesh_shape), "plain": torch.arange(6.0).reshape(2, 3), "step": rank}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer = FileSystemWriter(path, serialization_format=SerializationFormat(form))
        dcp.save(state, storage_writer=writer)


def load_dtensors(rank: int, path: Path, mesh_shape: tuple[int, ...]) -> bool:
    """Load whole tensors as DTensors under all placements; return whether each has its part."""
    state = _dtensors(mesh_shape)
    wanted = {name: tensor.to_local().clone() for name, tensor in state.items()}
    for tensor in state.values():
        tensor.to_local().zero_()
    assert rank == dist.get_rank()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=path)
    return all(tensor.to_local().equal(wanted[name]) for name, tensor in state.items())


def save_fsdp(rank: int, path: Path) -> dict[str, np.ndarray]:
    """Save a model under FSDP and its optimizer after a step; return their whole tensors."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(*WIDTHS), torch.nn.Linear(WIDTHS[1], 1))
    for layer in model:
        fully_shard(layer, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.Adam(model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(torch.ones(2, WIDTHS[0])).sum().backward()
        optimizer.step()
        optimizer_state = get_optimizer_state_dict(model, optimizer)
        dcp.save({"model": model.state_dict(), "optim": optimizer_state}, checkpoint_id=path)
    assert rank == dist.get_rank()
    first = {"optim.state.0.weight.exp_avg": optimizer_state["state"]["0.weight"]["exp_avg"]}
    weights = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    return {name: tensor.full_tensor().numpy() for name, tensor in (weights | first).items()}
