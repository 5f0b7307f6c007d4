"""GGUF of the families beside Llama, against gguf's own names and the reader in transformers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.port.models import refused, same_bytes, tensors
from xlayout import port
from xlayout.port.families import FAMILIES

SIZES = {
    "block_count": 2,
    "context_length": 64,
    "embedding_length": 48,
    "feed_forward_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 16,
}
OF_EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32}
VOCAB = 40

KINDS: dict[str, tuple[str, str, dict[str, int]]] = {  # by GGUF's name
    "qwen2": ("qwen2", "Qwen2", {"attention.head_count_kv": 1, "attention.key_length": 12}),
    "qwen3": ("qwen3", "Qwen3", {}),
    "qwen3moe": ("qwen3-moe", "Qwen3Moe", OF_EXPERTS),
    "llama": ("mixtral", "Mixtral", {"expert_count": 4, "expert_used_count": 2}),
}


def save_gguf(path: Path, arch: str, /, **more: Any) -> Path:
    """Write a GGUF file with random weights under llama.cpp's names."""
    family, _, changes = KINDS[arch]
    said = {**SIZES, **changes, **more}
    writer = gguf.GGUFWriter(path, arch)
    for key, value in said.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{arch}.{key}", value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(50.0)
    sizes = {
        "layer": said["block_count"],
        "vocab": VOCAB,
        "embed": said["embedding_length"],
        "mlp": said.get("expert_feed_forward_length", said["feed_forward_length"]),
        "heads": said["attention.head_count"],
        "kv": said["attention.head_count_kv"],
        "dim": said["attention.key_length"],
        "two": 2,
        "half": said["attention.key_length"] // 2,
        "expert": said.get("expert_count", 1),
    }
    random = np.random.default_rng(0)
    places = FAMILIES[family].dialects["gguf"].places(sizes)
    for name, place in {place.tensor: place for place in places}.items():
        shape = place.rule.target_shape(sizes)
        values = random.normal(1.0 if "norm" in name else 0.0, 0.2, shape)
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("arch", KINDS)
def test_the_names_are_those_of_ggufs_own_table(arch: str) -> None:
    family, _, _ = KINDS[arch]
    table = gguf.get_tensor_name_map(
        next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch), 8
    )
    for rule in FAMILIES[family].dialects["gguf"].rules:
        name = rule.name.replace("{layer}", "7").replace(".{expert}", "")
        found = table.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found == rule.target.replace("{layer}", "7")


@pytest.mark.parametrize("arch", ["qwen2", "qwen3", "qwen3moe"])
def test_transformers_reads_the_same_model_out_of_the_file(arch: str, tmp_path: Path) -> None:
    import torch
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    _, kind, _ = KINDS[arch]
    source = save_gguf(tmp_path / "tiny.gguf", arch)
    port.run(source, tmp_path / "hf", to="hf")
    model = getattr(transformers, f"{kind}ForCausalLM")
    ours = model.from_pretrained(tmp_path / "hf", dtype=torch.float32)
    theirs = load_gguf_checkpoint(source, return_tensors=True, model_to_load=ours)
    mine = ours.state_dict()
    assert mine.keys() == theirs["tensors"].keys()
    for name, weight in mine.items():
        assert torch.equal(weight, theirs["tensors"][name]), name
    told = {key: value for key, value in theirs["config"].items() if hasattr(ours.config, key)}
    said = {"head_dim", "num_experts_per_tok", "hidden_size", "num_key_value_heads"}
    for key in said.intersection(told):
        assert getattr(ours.config, key) == told[key], key


@pytest.mark.parametrize("arch", KINDS)
def test_gguf_composes_with_maxtext_without_a_stop_at_hf(arch: str, tmp_path: Path) -> None:
    source = save_gguf(tmp_path / "tiny.gguf", arch)
    port.run(source, tmp_path / "hf", to="hf")
    port.run(source, tmp_path / "tree", to="maxtext")
    assert port.verify(source, tmp_path / "tree").identical
    port.run(tmp_path / "tree", tmp_path / "back", to="hf")
    assert same_bytes(tmp_path / "hf", tmp_path / "back")


def test_a_mixtrals_rows_are_unturned(tmp_path: Path) -> None:
    source = save_gguf(tmp_path / "tiny.gguf", "llama")
    report = port.run(source, tmp_path / "hf", to="hf")
    assert report.plan.config["num_local_experts"] == 4  # the only key that transformers 4 reads
    assert "num_experts" not in report.plan.config
    reader = gguf.GGUFReader(source)
    stored = next(t.data for t in reader.tensors if t.name == "blk.1.attn_k.weight")
    found = tensors(tmp_path / "hf")["model.layers.1.self_attn.k_proj.weight"]
    for head in range(2):
        for pair in range(8):
            for side in range(2):
                row = found[head * 16 + side * 8 + pair]
                assert np.array_equal(row, stored[head * 16 + 2 * pair + side])


@pytest.mark.parametrize("arch", KINDS)
def test_a_base_that_the_file_leaves_out_is_llama_cpps(
    arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    monkeypatch.setattr(gguf.GGUFWriter, "add_rope_freq_base", lambda *_: None)
    source = save_gguf(tmp_path / "tiny.gguf", arch)
    port.run(source, tmp_path / "hf", to="hf")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "hf")
    assert config.rope_parameters["rope_theta"] == 10_000.0
    tree = port.plan(source, tmp_path / "out", to="maxtext").config["maxtext"]
    assert tree["rope_max_timescale"] == 10_000.0


@pytest.mark.parametrize(
    ("arch", "said", "shown"),
    [
        ("gemma2", {}, "'gemma2'"),
        ("qwen2moe", {"expert_count": 4}, "'qwen2moe' with experts"),
        ("qwen2", {"expert_count": 4}, "'qwen2' with experts"),
    ],
)
def test_an_architecture_without_a_family_is_named_as_the_file_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str, said: dict[str, int], shown: str
) -> None:
    monkeypatch.setitem(KINDS, arch, KINDS["qwen2"])
    source = save_gguf(tmp_path / "tiny.gguf", arch, **said)
    text = (
        f"{source}: general.architecture: {shown}; known are llama, llama with experts, qwen2, "
        "qwen3, qwen3moe with experts. If the tensors follow one of llama, mixtral, qwen2, qwen3, "
        "qwen3-moe, name it with family= (--family)"
    )
    refused(source, tmp_path / "out", f"^{re.escape(text)}$")
    assert f"no family: {text}" in str(port.inspect(source))
    assert port.plan(source, tmp_path / "out", to="hf", family="qwen2").moves


def test_a_family_without_rules_for_the_format_says_so(tmp_path: Path) -> None:
    source = save_gguf(tmp_path / "tiny.gguf", "qwen2")
    text = "family: 'mistral' has no rules for gguf; it has safetensors, maxtext"
    refused(source, tmp_path / "out", text, family="mistral")
