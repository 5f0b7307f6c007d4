"""The families beside Llama: torch and JAX compute the same from a port, and all of it returns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.port.models import (
    DECODERS,
    STEEP_ROPE,
    edit_config,
    refused,
    same_bytes,
    save_model,
    torch_logits,
)
from tests.port.test_parity import IDS, agree, jax_logits
from xlayout import port


@pytest.fixture(scope="module", params=DECODERS, ids=lambda name: name.replace(", ", "-"))
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each tiny model in turn, in bfloat16."""
    kind, config = DECODERS[request.param]
    rope = {"rope_parameters": STEEP_ROPE}
    return save_model(tmp_path_factory.mktemp("hf") / "model", kind, **rope, **config)


def test_torch_and_jax_agree_on_the_logits(decoder: Path, tmp_path: Path) -> None:
    port.run(decoder, tmp_path / "out", to="maxtext")
    assert agree(decoder, tmp_path / "out")
    port.run(decoder, tmp_path / "unscanned", to="maxtext-unscanned")
    assert port.verify(tmp_path / "out", tmp_path / "unscanned").identical


@pytest.mark.parametrize("to", ["maxtext", "maxtext-unscanned"])
@pytest.mark.parametrize("max_ram", ["512MiB", "24kB"])
def test_every_byte_comes_back(decoder: Path, tmp_path: Path, to: str, max_ram: str) -> None:
    there = port.run(decoder, tmp_path / "there", to=to, max_ram=max_ram)
    assert there.plan.buffer_bytes <= 24_000 or max_ram != "24kB"
    port.run(tmp_path / "there", tmp_path / "back", to="hf")
    assert same_bytes(decoder, tmp_path / "back")
    assert not port.diff(decoder, tmp_path / "back").lines


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("mixtral", {"num_experts_per_tok": 3}),
        ("qwen2", {"decoder_block": "llama2"}),
        ("mistral", {"decoder_block": "qwen2"}),
        ("qwen3", {"rope_type": "llama3.1"}),
        ("qwen3-moe", {"normalization_layer_epsilon": 0.5}),
    ],
)
def test_the_parity_check_notices_a_wrong_config(
    tmp_path: Path, name: str, wrong: dict[str, object]
) -> None:
    kind, config = DECODERS[name]
    source = save_model(tmp_path / "hf", kind, rope_parameters=STEEP_ROPE, **config)
    port.run(source, tmp_path / "out", to="maxtext")
    wanted = torch_logits(source, IDS)
    assert (
        np.abs(wanted - jax_logits(tmp_path / "out", **wrong)).max() > 1e-2 * np.abs(wanted).max()
    )


def test_maxtext_is_told_of_experts(tmp_path: Path) -> None:
    source = save_model(tmp_path / "hf", "Qwen3Moe", **DECODERS["qwen3-moe"][1])
    told = port.plan(source, tmp_path / "out", to="maxtext").config["maxtext"]
    wanted = {
        "decoder_block": "qwen3_moe",
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "base_moe_mlp_dim": 48,
        "base_mlp_dim": 48,  # MaxText wants both equal in a model of experts alone
        "norm_topk_prob": True,
        "use_qk_norm": True,
        "attention_bias": False,
        "scan_layers": True,
        "rope_type": "default",
    }
    assert {key: told[key] for key in wanted} == wanted


def test_a_model_without_experts_has_no_word_of_them(tmp_path: Path) -> None:
    source = save_model(tmp_path / "hf", "Qwen3", **DECODERS["qwen3"][1])
    told = port.plan(source, tmp_path / "out", to="maxtext").config["maxtext"]
    assert not {"num_experts", "num_experts_per_tok", "base_moe_mlp_dim"}.intersection(told)


def test_the_plan_folds_layers_and_experts(tmp_path: Path) -> None:
    source = save_model(tmp_path / "hf", "Mixtral", **DECODERS["mixtral"][1])
    text = str(port.plan(source, tmp_path / "out", to="maxtext"))
    assert "layers.{0..2}.block_sparse_moe.experts.{0..4}.w2.weight" in text
    assert "3 along axis 1, 5 along axis 0" in text


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("mistral", {"sliding_window": 4096}, "sliding_window is 4096; MaxText's Mistral has none"),
        (
            "mistral",  # whose transformers' form knows no switch
            {"sliding_window": 4096, "use_sliding_window": False},
            "sliding_window is 4096; MaxText's Mistral has none",
        ),
        (
            "mixtral",
            {"sliding_window": 4096, "use_sliding_window": False},
            "sliding_window is 4096; MaxText's Mixtral has none",
        ),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 32}, "sliding_window is 32"),
        ("qwen3-moe", {"norm_topk_prob": False}, "norm_topk_prob is False; wanted True, MaxText's"),
        ("qwen3-moe", {"norm_topk_prob": None}, "norm_topk_prob is False; wanted True, MaxText's"),
        (
            "qwen3",
            {"attention_bias": True},
            "attention_bias is True; wanted False, MaxText's",
        ),
        (
            "qwen3",  # as told to do for long texts, but beside what transformers saved
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            "rope_parameters is .* and rope_scaling is .*; wanted one of the two",
        ),
        (
            "qwen3",
            {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}},
            "a rope for each of .'full_attention'.; wanted one for all kinds of layers",
        ),
        ("mixtral", {"num_local_experts": 10**6}, "3 layers of 1,000,000 experts; wanted at most"),
        ("mixtral", {"num_experts_per_tok": 0}, "num_experts_per_tok is 0; wanted a positive"),
        ("mixtral", {"num_experts_per_tok": 9}, "num_experts_per_tok is 9; wanted at most 5, the"),
    ],
)
def test_what_maxtext_would_compute_otherwise_is_refused(
    tmp_path: Path, name: str, change: dict[str, object], text: str
) -> None:
    kind, config = DECODERS[name]
    source = save_model(tmp_path / "hf", kind, **config)
    edit_config(source, **change)
    refused(source, tmp_path / "out", text)


def test_a_mistral_whose_config_is_silent_has_a_window(tmp_path: Path) -> None:
    source = save_model(tmp_path / "hf", "Mistral", **DECODERS["mistral"][1])
    edit_config(source, sliding_window=None)
    refused(source, tmp_path / "out", "sliding_window is 4096; MaxText's Mistral has none")
    port.run(source, tmp_path / "same", to="hf")
    assert same_bytes(source, tmp_path / "same")


def test_a_missing_expert_is_told_by_its_number(tmp_path: Path) -> None:
    source = save_model(tmp_path / "hf", "Mixtral", **DECODERS["mixtral"][1])
    edit_config(source, num_local_experts=6)
    refused(
        source,
        tmp_path / "out",
        r"missing \(9\): model.layers.\{0..2\}.block_sparse_moe.experts.5.w1.weight; ",
    )
    edit_config(source, num_local_experts=4)
    refused(source, tmp_path / "out", r"experts.4.w1.weight \(the config has 4 experts, 0 to 3\)")
