"""What torch's ranks do with a Llama that is stored by their parts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from bench.child import bytes_read

__all__ = ["loaded"]

_ROWWISE = ("o_proj", "down_proj")


def loaded(
    rank: int, path: Path, hf: Path, mesh_shape: tuple[int, int], whole: Path | None = None
) -> tuple[bool, int]:
    """Load a model under FSDP and tensor parallelism; whether it is right, and the bytes read.

    `hf` has the config, and the right tensors too unless they are in the file `whole`.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(rank)
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=("fsdp", "tp"))
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(hf), dtype=torch.bfloat16)
    parallelize_module(model, mesh["tp"], {name: _style(name) for name in _cut(model)})
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh["fsdp"])
    fully_shard(model, mesh=mesh["fsdp"])
    state: dict[str, Any] = model.state_dict()
    _load(state, path)  # what is imported for the first one is read by then
    for tensor in state.values():
        tensor.to_local().zero_()
    before = bytes_read()
    _load(state, path)
    read = bytes_read() - before
    wanted = load_file(whole or hf / "model.safetensors")
    same = all(tensor.full_tensor().equal(wanted[name]) for name, tensor in state.items())
    assert all(isinstance(tensor, DTensor) for tensor in state.values())
    return same, read


def _cut(model: torch.nn.Module) -> list[str]:
    kinds = torch.nn.Linear, torch.nn.Embedding
    return [name for name, layer in model.named_modules() if isinstance(layer, kinds)]


def _style(name: str) -> ColwiseParallel | RowwiseParallel:
    if "embed" in name:
        return RowwiseParallel(input_layouts=Replicate())
    return RowwiseParallel() if name.endswith(_ROWWISE) else ColwiseParallel()


def _load(state: dict[str, Any], path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=path)
