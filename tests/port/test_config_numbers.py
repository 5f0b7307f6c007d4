"""A number in a config is one that a float can hold, or the port is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.port.formulas import CONFIG
from tests.port.models import LLAMA3_ROPE, edit_config, refused
from xlayout import port
from xlayout.errors import PortError
from xlayout.port.configs import with_dtype, with_maxtext
from xlayout.port.families import FAMILIES
from xlayout.port.families.llama import LLAMA

POSITIVE = "wanted a positive number"
LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rms_norm_eps": 10**400}, f"rms_norm_eps is 1{79 * '0'}; wanted a number from 0 on"),
        ({"rope_parameters": {"rope_theta": 10**400}}, f"rope_theta is 1{79 * '0'}; {POSITIVE}"),
        ({"rope_parameters": {"rope_theta": 0}}, f"rope_theta is 0; {POSITIVE}"),
        ({"rope_parameters": {}, "rope_theta": False}, f"rope_theta is False; {POSITIVE}"),
        ({"rope_parameters": {**LINEAR, "factor": "8"}}, f"rope factor is '8'; {POSITIVE}"),
        ({"rope_parameters": {**LINEAR, "factor": -8}}, f"rope factor is -8; {POSITIVE}"),
        ({"rope_parameters": {**LINEAR, "factor": True}}, f"rope factor is True; {POSITIVE}"),
        (
            {"max_position_embeddings": "many"},
            "max_position_embeddings is 'many'; wanted a positive whole number",
        ),
        (
            {"max_position_embeddings": 0},
            "max_position_embeddings is 0; wanted a positive whole number",
        ),
    ],
)
def test_what_is_no_number_is_refused(
    own_llama: Path, tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    edit_config(own_llama, **change)
    refused(own_llama, tmp_path / "out", f"^config: {text}$", to="maxtext-default-rope")


def test_a_number_is_taken_whole_or_not(own_llama: Path, tmp_path: Path) -> None:
    edit_config(own_llama, rope_parameters={**LINEAR, "factor": 8}, max_position_embeddings=None)
    plan = port.plan(own_llama, tmp_path / "out", to="maxtext-default-rope")
    assert plan.config["maxtext"]["rope_linear_scaling_factor"] == 8
    assert "max_target_length" not in plan.config["maxtext"]


@pytest.mark.parametrize(
    ("name", "epsilon", "base"),
    [
        ("llama", 1e-6, 1e4),
        ("mixtral", 1e-5, 1e6),
        ("qwen2", 1e-6, 1e4),
        ("qwen3", 1e-6, 1e4),
        ("qwen3-moe", 1e-6, 1e4),
    ],
)
def test_what_a_config_leaves_out_is_as_transformers_has_it(
    name: str, epsilon: float, base: float
) -> None:
    family = FAMILIES[name]
    config = {"norm_topk_prob": True} if name == "qwen3-moe" else {}
    made = with_maxtext(config, {}, family, {"rope_type": "default"}, origin={})["maxtext"]
    assert made["normalization_layer_epsilon"] == epsilon
    assert made["rope_max_timescale"] == base


def test_maxtext_is_told_what_its_own_defaults_would_get_wrong() -> None:
    sizes = LLAMA.model_sizes(CONFIG)
    made = with_maxtext({}, sizes, LLAMA, {"rope_type": "llama3.1"}, origin={})["maxtext"]
    wanted = {
        "base_emb_dim": 5,
        "base_num_query_heads": 6,
        "base_num_kv_heads": 2,
        "head_dim": 8,
        "base_mlp_dim": 9,
        "base_num_decoder_layers": 2,
        "vocab_size": 7,
        "rope_use_scale": False,
        "logits_via_embedding": False,
        "normalize_embedding_logits": False,
        "enable_dropout": False,
    }
    assert {key: made.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("name", "block", "biased", "normed"),
    [
        ("llama", "llama2", None, None),
        ("mistral", "mistral", None, None),
        ("mixtral", "mixtral", None, None),
        ("qwen2", "qwen2", True, False),
        ("qwen3", "qwen3", False, True),
        ("qwen3-moe", "qwen3_moe", False, True),
    ],
)
def test_maxtext_is_told_of_what_a_layer_is_made(
    name: str, block: str, biased: bool | None, normed: bool | None
) -> None:
    family = FAMILIES[name]
    config = {"norm_topk_prob": True, "sliding_window": None}
    made = with_maxtext(config, {}, family, {"rope_type": "default"}, origin={})["maxtext"]
    assert made["decoder_block"] == block
    assert (made.get("attention_bias"), made.get("use_qk_norm")) == (biased, normed)
    assert made["mlp_activations"] == ["silu", "linear"]


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "qwen3-moe"])
@pytest.mark.parametrize("switch", [{}, {"use_sliding_window": False}], ids=["silent", "off"])
def test_a_window_that_is_not_switched_on_is_none(name: str, switch: dict[str, bool]) -> None:
    """As in the configs of the models that Qwen publishes."""
    family = FAMILIES[name]
    config = {"norm_topk_prob": True, "sliding_window": 4096, "max_position_embeddings": 32768}
    choices = {"rope_type": "default"}
    made = with_maxtext({**config, **switch}, {}, family, choices, origin={})
    assert made["maxtext"]["max_target_length"] == 32768
    with pytest.raises(PortError, match="sliding_window is 4096; MaxText's Qwen"):
        with_maxtext({**config, "use_sliding_window": True}, {}, family, choices, origin={})


@pytest.mark.parametrize(
    "key", [key for key in LLAMA3_ROPE if key not in ("rope_type", "rope_theta")]
)
def test_maxtext_scales_by_its_own_numbers_only(key: str) -> None:
    choices = {"rope_type": "llama3.1"}
    for given in (LLAMA3_ROPE, {**LLAMA3_ROPE, "rope_theta": 5e5}):
        made = with_maxtext({"rope_parameters": given}, {}, LLAMA, choices, origin={})
        assert made["maxtext"]["rope_use_scale"]
    other = {**LLAMA3_ROPE, key: 2 * LLAMA3_ROPE[key]}
    with pytest.raises(PortError, match=f"'{key}': {other[key]}.*; MaxText scales by .* only"):
        with_maxtext({"rope_parameters": other}, {}, LLAMA, choices, origin={})


@pytest.mark.parametrize("family", port.families(), ids=lambda family: family.name)
def test_heads_of_which_a_config_says_no_size_have_that_of_transformers(
    family: port.Family,
) -> None:
    """Only Qwen 3 has one of its own; without experts, that is."""
    sizes = family.model_sizes({**CONFIG, "hidden_size": 12, "head_dim": None})
    assert sizes["dim"] == (128 if family.name == "qwen3" else 2)


@pytest.mark.parametrize("said", [("torch_dtype",), ("dtype",), ("torch_dtype", "dtype"), ()])
def test_a_dtype_is_replaced_wherever_it_is_said(said: tuple[str, ...]) -> None:
    made = with_dtype(dict.fromkeys(said, "bfloat16"), "float32")
    assert made == dict.fromkeys(said or ("dtype",), "float32")
