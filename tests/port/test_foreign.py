"""Checkpoints of known kinds that no family covers are refused with advice on what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.port.models import MODELS, edit_config, refused, save_llama, save_tensors, tensors
from xlayout import port
from xlayout.errors import PortError
from xlayout.port.foreign import foreign

DEQUANTISE = r"\n  which are quantised weights; dequantise them first"


def quantised(weights: dict[str, Any], *kinds: str) -> dict[str, Any]:
    """The weights with quantised ones next to, or in place of, each projection."""
    found = {}
    for name, values in weights.items():
        stem = name.removesuffix("weight")
        if not stem.endswith("_proj."):
            found[name] = values
        for kind in kinds if stem.endswith("_proj.") else ():
            found[stem + kind] = values if kind == "weight" else np.ones(2, np.float32)
    return found


@pytest.mark.parametrize(
    "kinds",
    [
        ("weight", "weight_scale_inv"),
        ("weight", "weight_scale"),
        ("weight_packed", "weight_scale", "weight_shape"),
        ("qweight", "qzeros", "scales", "g_idx"),
        ("weight", "weight.absmax", "weight.quant_map"),
        ("weight", "SCB"),
    ],
)
def test_quantised_weights_are_refused(
    own_llama: Path, tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    save_tensors(own_llama, quantised(tensors(own_llama), *kinds))
    refused(own_llama, tmp_path / "out", rf"(?s)unexpected \(\d+\): model\.layers.*{DEQUANTISE}")


def test_an_adapter_is_refused_without_a_config_and_with_one(
    own_llama: Path, tmp_path: Path
) -> None:
    adapter = {f"base_model.model.model.layers.0.self_attn.q_proj.lora_{x}.weight" for x in "AB"}
    save_tensors(own_llama, {name: np.ones((8, 64), np.float32) for name in adapter})
    refused(own_llama, tmp_path / "out", r"which are an adapter \(LoRA\); merge it into its model")
    (own_llama / "config.json").unlink()
    (own_llama / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    refused(own_llama, tmp_path / "out", r"no config; .*; it holds an adapter \(LoRA\); merge it")


def test_the_names_that_meta_and_mistral_have_are_told(own_llama: Path, tmp_path: Path) -> None:
    there = {
        name.replace("model.layers", "layers").replace("self_attn.q_proj", "attention.wq"): values
        for name, values in tensors(own_llama).items()
    }
    save_tensors(own_llama, there)
    refused(own_llama, tmp_path / "out", "the names of Meta's and Mistral's own files; take the")


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        ("an adapter", ["q_proj.lora_A.weight", "q_proj.lora_embedding_B"]),
        ("quantised", ["q_proj.qweight", "q_proj.qzeros", "q_proj.SCB", "q_proj.weight.absmax"]),
        ("quantised", ["q_proj.weight_packed", "q_proj.weight_scale", "q_proj.weight_scale_inv"]),
        ("quantised", ["experts.gate_up_proj_blocks", "experts.gate_up_proj_scales"]),
        ("the names of Meta", [f"attention.w{x}.weight" for x in "qkvo"]),
    ],
)
def test_each_name_is_enough_to_tell_its_kind(kind: str, ends: list[str]) -> None:
    for end in ends:
        (told,) = foreign(["model.norm.weight", f"model.layers.10.{end}"])
        assert told.startswith(kind)


def test_other_names_are_of_no_known_kind() -> None:
    assert foreign(["model.layers.0.self_attn.masked_bias", "optimizer.state.absmax1"]) == ()


def test_a_padded_vocabulary_says_how_it_is_ported(tmp_path: Path) -> None:
    source = save_llama(tmp_path / "source", **MODELS["grouped"])
    weights = tensors(source)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = np.pad(weights[name], ((0, 32), (0, 0)))
    save_tensors(source, weights)
    text = r"shape \(128, 64\); wanted \(96, 64\) = .*; a vocabulary .* with vocab_size: 128 in the"
    refused(source, tmp_path / "out", text)
    edit_config(source, vocab_size=128)
    port.run(source, tmp_path / "megatron", to="megatron")
    port.run(tmp_path / "megatron", tmp_path / "back", to="hf")
    assert port.verify(source, tmp_path / "back").identical


@pytest.mark.parametrize(
    "wrong", [{"intermediate_size": 70}, {"vocab_size": 90, "hidden_size": 8}], ids=["mlp", "both"]
)
def test_only_a_vocabulary_by_itself_is_one_that_was_padded(
    own_llama: Path, tmp_path: Path, wrong: dict[str, int]
) -> None:
    edit_config(own_llama, **wrong)
    with pytest.raises(PortError, match="by the config") as error:
        port.plan(own_llama, tmp_path / "out", to="megatron")
    assert "a vocabulary" not in str(error.value)


def test_a_vocabulary_that_lacks_rows_is_none_that_was_padded(
    own_llama: Path, tmp_path: Path
) -> None:
    edit_config(own_llama, vocab_size=100)
    refused(
        own_llama, tmp_path / "out", r"wanted \(100, 64\) = \(vocab\) \(embed\), by the config\n"
    )
