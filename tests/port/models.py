"""Tiny random models, saved as transformers saves them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from xlayout import port
from xlayout.errors import PortError

os.environ["HF_HUB_OFFLINE"] = "1"

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

STEEP_ROPE = {"rope_type": "default", "rope_theta": 50.0}  # so steep that a wrong base shows

MODELS: dict[str, dict[str, Any]] = {
    "grouped": {"num_key_value_heads": 2},
    "multi-head, tied": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "wide heads": {"num_key_value_heads": 2, "head_dim": 128, "rope_parameters": STEEP_ROPE},
    "one kv head, llama3 rope": {"num_key_value_heads": 1, "rope_parameters": LLAMA3_ROPE},
}

_EXPERTS = {"num_experts_per_tok": 2, "num_key_value_heads": 2}

DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("Mistral", {"num_key_value_heads": 2, "head_dim": 24, "sliding_window": None}),
    "mixtral": ("Mixtral", {"num_local_experts": 5, **_EXPERTS}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2}),
    "qwen2, tied": ("Qwen2", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"num_key_value_heads": 2, "head_dim": 24}),
    "qwen3-moe": (
        "Qwen3Moe",
        {"num_experts": 6, "moe_intermediate_size": 48, "norm_topk_prob": True, **_EXPERTS},
    ),
}

DIALECTS = [
    "maxtext",
    "maxtext-unscanned",
    "maxtext-default-rope",
    "maxtext-default-rope-unscanned",
]

# MaxText's default rope cannot express llama3's scaling, so the plan refuses it.
PAIRS = [
    (model, to)
    for model, config in MODELS.items()
    for to in DIALECTS
    if not ("default" in to and config.get("rope_parameters") is LLAMA3_ROPE)
]


def save_llama(path: Path, /, *, dtype: str = "bfloat16", **config: Any) -> Path:
    """Save a random Llama whose attention is far from uniform, and return the path."""
    return save_model(path, "Llama", dtype=dtype, **config)


def save_model(path: Path, kind: str, /, *, dtype: str = "bfloat16", **config: Any) -> Path:
    """Save a random model of one of transformers' classes, with random norms and biases."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    config = {"initializer_range": 0.15, **SIZES, **config}
    shape = getattr(transformers, f"{kind}Config")(**config)
    model = getattr(transformers, f"{kind}ForCausalLM")(shape)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                weight.add_(0.2 * torch.randn_like(weight))
    model.to(getattr(torch, dtype)).save_pretrained(path)
    return path


def torch_logits(path: Path, ids: list[int]) -> Any:
    """Return transformers' float32 logits."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def tensors(path: Path) -> dict[str, Any]:
    """Return all tensors of a safetensors file as safetensors itself reads them."""
    import ml_dtypes  # noqa: F401  (numpy then knows bfloat16)
    from safetensors.numpy import load_file

    return dict(load_file(path / "model.safetensors"))


def same_bytes(a: Path, b: Path) -> bool:
    """Whether two directories hold the same tensors, bit for bit."""
    first, second = tensors(a), tensors(b)
    return first.keys() == second.keys() and all(
        (x.dtype, x.shape, x.tobytes())
        == (second[name].dtype, second[name].shape, second[name].tobytes())
        for name, x in first.items()
    )


def edit_config(path: Path, **changes: Any) -> None:
    """Change keys of a config.json; None removes one."""
    file = path / "config.json"
    config = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def save_tensors(path: Path, arrays: dict[str, Any]) -> None:
    """Write a safetensors file over the one that is there."""
    from safetensors.numpy import save_file

    save_file(arrays, path / "model.safetensors")


def refused(source: Path, out: Path, text: str, /, **options: Any) -> None:
    """Both `plan` and `run` refuse with this text, and leave no trace."""
    before = sorted(out.parent.iterdir())
    options = {"to": "maxtext", **options}
    for verb in (port.plan, port.run):
        with pytest.raises(PortError, match=text):
            verb(source, out, **options)
        assert sorted(out.parent.iterdir()) == before
