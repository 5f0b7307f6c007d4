"""A model of experts saved as transformers 5 has it in memory equals the one in its files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

from tests.port.formats.dcp_saves import save_dcp
from tests.port.models import (
    DECODERS,
    edit_config,
    refused,
    same_bytes,
    save_model,
    save_tensors,
    tensors,
    torch_logits,
)
from xlayout import port

transformers = pytest.importorskip("transformers", minversion="5")

EXPERTS = pytest.mark.parametrize("name", ["mixtral", "qwen3-moe"])
IDS = [3, 1, 4, 1, 5]


def saved(folder: Path, name: str) -> tuple[Path, dict[str, torch.Tensor]]:
    """Return a model's files and its state dict."""
    kind, config = DECODERS[name]
    source = save_model(folder / "source", kind, **config)
    model = transformers.AutoModelForCausalLM.from_pretrained(source)
    state: dict[str, torch.Tensor] = model.state_dict()
    assert state["model.layers.2.mlp.experts.gate_up_proj"].ndim == 3
    return source, state


def with_config(path: Path, source: Path) -> Path:
    (path / "config.json").write_bytes((source / "config.json").read_bytes())
    return path


def load(state: dict[str, Any], path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=path)


@EXPERTS
def test_torch_loads_a_port_into_the_model(tmp_path: Path, name: str) -> None:
    source, state = saved(tmp_path, name)
    port.run(source, tmp_path / "maxtext", to="maxtext")
    port.run(tmp_path / "maxtext", tmp_path / "dcp", to="dcp-fused")
    port.run(tmp_path / "dcp", tmp_path / "trainer", to="dcp-model-fused", max_ram="16kB")
    empty = {key: torch.zeros_like(value) for key, value in state.items()}
    load(empty, tmp_path / "dcp")
    assert all(empty[key].equal(value) for key, value in state.items())
    nested = {"model": {key: torch.zeros_like(value) for key, value in state.items()}}
    load(nested, tmp_path / "trainer")
    assert all(nested["model"][key].equal(value) for key, value in state.items())


@EXPERTS
def test_what_torch_saved_of_the_model_is_the_model(tmp_path: Path, name: str) -> None:
    source, state = saved(tmp_path, name)
    save_dcp(tmp_path / "dcp", state)
    save_dcp(tmp_path / "trainer", {"model": state, "optim": {"state": torch.zeros(2)}, "step": 3})
    (tmp_path / "file").mkdir()
    save_file(state, tmp_path / "file" / "model.safetensors")
    for folder, spoken in [
        ("dcp", "dcp-fused"),
        ("trainer", "dcp-model-fused"),
        ("file", "hf-fused"),
    ]:
        there = with_config(tmp_path / folder, source)
        report = port.run(there, tmp_path / f"{folder}-hf", to="hf", max_ram="16kB")
        assert report.plan.dialects == (spoken, "hf")
        assert report.plan.buffer_bytes <= 16_000
        assert same_bytes(source, tmp_path / f"{folder}-hf")


@EXPERTS
def test_transformers_reads_its_own_names_from_files(tmp_path: Path, name: str) -> None:
    source, state = saved(tmp_path, name)
    report = port.run(source, tmp_path / "fused", to="hf-fused")
    assert report.comparison is not None
    assert report.comparison.identical
    assert report.plan.specs.keys() == state.keys()
    assert (torch_logits(tmp_path / "fused", IDS) == torch_logits(source, IDS)).all()


@EXPERTS
def test_megatron_to_memory_without_a_stop(tmp_path: Path, name: str) -> None:
    source, state = saved(tmp_path, name)
    port.run(source, tmp_path / "megatron", to="megatron")
    port.run(tmp_path / "megatron", tmp_path / "fused", to="hf-fused")
    (tmp_path / "own").mkdir()
    save_file(state, tmp_path / "own" / "model.safetensors")
    assert same_bytes(tmp_path / "fused", tmp_path / "own")


def test_experts_that_the_config_has_not_are_refused(tmp_path: Path) -> None:
    source, state = saved(tmp_path, "mixtral")
    save_file(state, source / "model.safetensors")
    edit_config(source, num_local_experts=6)
    refused(
        source,
        tmp_path / "out",
        r"mlp\.experts\.gate_up_proj: shape \(5, 160, 64\); wanted \(6, 160, 64\) = "
        r"\(expert\) \(mlp\) \(embed\), by the config",
    )


def test_names_of_both_kinds_are_told_apart(tmp_path: Path) -> None:
    source, state = saved(tmp_path, "mixtral")
    files = load_file(source / "model.safetensors")
    mixed = {name: x for name, x in files.items() if "layers.2." not in name}
    mixed |= {name: x for name, x in state.items() if "layers.2." in name}
    for arrays in (mixed, {**files, **state}):
        save_file({name: x.clone() for name, x in arrays.items()}, source / "model.safetensors")
        text = r"gate_up_proj \(a name of hf-fused; wanted all names of one kind\)"
        refused(source, tmp_path / "out", text)


def test_experts_of_two_dtypes_are_no_layers(tmp_path: Path) -> None:
    kind, config = DECODERS["mixtral"]
    source = save_model(tmp_path / "source", kind, **config)
    arrays = tensors(source)
    name = "model.layers.1.block_sparse_moe.experts.3.w2.weight"
    save_tensors(source, {**arrays, name: arrays[name].astype("float32")})
    text = "down_proj: its experts are bfloat16 and float32; a stack has one dtype"
    refused(source, tmp_path / "out", text, to="hf-fused")
    text = "wo: its layers and experts are bfloat16 and float32; a stack has one dtype"
    refused(source, tmp_path / "out", text, to="maxtext")


def test_a_model_without_experts_has_one_name_for_a_weight() -> None:
    fused = {family.name for family in port.families() if "hf-fused" in family.dialects}
    assert fused == {"mixtral", "qwen3-moe"}
