"""A port is right when both frameworks compute the same from it; a round trip proves nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.port.models import PAIRS, edit_config, save_llama, torch_logits
from xlayout import port

IDS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79]


def jax_logits(path: Path, **overridden: object) -> np.ndarray:
    import jax.numpy as jnp

    from xlayout.port.demo.decoder_jax import forward, load

    tree, config = load(path)
    return np.asarray(forward(tree, jnp.asarray(IDS), {**config, **overridden}))


def agree(model: Path, tree: Path) -> bool:
    """Whether torch computes from a model what JAX computes from a port of it."""
    wanted, found = torch_logits(model, IDS), jax_logits(tree)
    near = np.abs(wanted - found).max() <= 1e-4 * np.abs(wanted).max()
    return bool(near and (wanted.argmax(-1) == found.argmax(-1)).all())


@pytest.mark.parametrize(("any_llama", "to"), PAIRS, indirect=["any_llama"])
def test_torch_and_jax_agree_on_the_logits(any_llama: Path, tmp_path: Path, to: str) -> None:
    port.run(any_llama, tmp_path / "out", to=to)
    assert agree(any_llama, tmp_path / "out")


def test_linear_rope_scaling_is_told_to_maxtext(tmp_path: Path) -> None:
    rope = {"rope_type": "linear", "rope_theta": 50.0, "factor": 4.0}
    source = save_llama(tmp_path / "hf", num_key_value_heads=2, rope_parameters=rope)
    port.run(source, tmp_path / "out", to="maxtext-default-rope")
    assert agree(source, tmp_path / "out")
    wanted = torch_logits(source, IDS)
    wrong = jax_logits(tmp_path / "out", rope_linear_scaling_factor=1.0)
    assert np.abs(wanted - wrong).max() > 1e-2 * np.abs(wanted).max()


def test_the_parity_check_notices_a_wrong_rope_order(wide_llama: Path, tmp_path: Path) -> None:
    port.run(wide_llama, tmp_path / "out", to="maxtext")
    wanted = torch_logits(wide_llama, IDS)
    wrong = jax_logits(tmp_path / "out", rope_type="default")
    assert np.abs(wanted - wrong).max() > 1e-2 * np.abs(wanted).max()


def test_what_a_config_leaves_out_is_told_to_maxtext(own_llama: Path, tmp_path: Path) -> None:
    from transformers import LlamaConfig

    edit_config(own_llama, rms_norm_eps=None, hidden_act=None)
    port.run(own_llama, tmp_path / "out", to="maxtext")
    told = json.loads((tmp_path / "out" / "config.json").read_text())["maxtext"]
    assert told["normalization_layer_epsilon"] == LlamaConfig().rms_norm_eps == 1e-6
    assert told["mlp_activations"] == ["silu", "linear"]
    assert told["normalize_embedding_logits"] is False


@pytest.mark.parametrize("key", ["rope_max_timescale", "normalization_layer_epsilon"])
def test_the_parity_check_notices_a_wrong_config(
    wide_llama: Path, tmp_path: Path, key: str
) -> None:
    port.run(wide_llama, tmp_path / "out", to="maxtext")
    wanted = torch_logits(wide_llama, IDS)
    wrong = jax_logits(tmp_path / "out", **{key: 0.5})
    assert np.abs(wanted - wrong).max() > 1e-2 * np.abs(wanted).max()
