"""Presets: the rules of well-known models, by the `model_type` of their config."""

from __future__ import annotations

from typing import Any

from xlayout.tp.numbers import config_value
from xlayout.tp.rules import Rule, Stored

__all__ = ["NORMS_OF_HEADS", "PRESETS", "preset_of"]

_QKV = "heads + kv_heads + kv_heads"


def _separate_qkv(attention: str, out: str, keys: str) -> tuple[Rule, ...]:
    """Queries, keys and values as three layers."""
    return (
        Rule(f"{attention}.q_proj", "column", "heads"),
        Rule(f"{attention}.k_proj", "column", keys),
        Rule(f"{attention}.v_proj", "column", keys),
        Rule(f"{attention}.{out}", "row", "heads"),
    )


def _fused_qkv(attention: str, features: str) -> tuple[Rule, ...]:
    return (
        Rule(f"{attention}.query_key_value", "column", features),
        Rule(f"{attention}.dense", "row", "heads"),
    )


def _mlp(up: str, down: str, stored: Stored = "out_in") -> tuple[Rule, ...]:
    """An MLP of two layers."""
    return Rule(up, "column", stored=stored), Rule(down, "row", stored=stored)


_ATTENTION = _separate_qkv("self_attn", "o_proj", "kv_heads")
NORMS_OF_HEADS = (
    Rule("self_attn.q_norm", "whole", partial_grads=True),
    Rule("self_attn.k_norm", "whole", partial_grads=True),
)
_GATED = (
    Rule("mlp.gate_proj", "column"),
    Rule("mlp.up_proj", "column"),
    Rule("mlp.down_proj", "row"),
)
_EXPERTS = (
    Rule("mlp.experts", "sum"),
    Rule("mlp.experts.gate_up_proj", "column", "plain + plain"),
    Rule("mlp.experts.down_proj", "row"),
)
_FUSED_GATED = (
    Rule("mlp.gate_up_proj", "column", "plain + plain"),
    Rule("mlp.down_proj", "row"),
)
_FOUR_TIMES = _mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")

_LLAMA = (*_ATTENTION, *_GATED)
_QWEN3 = (*_LLAMA, *NORMS_OF_HEADS)

PRESETS: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(("gemma", "gemma2", "granite", "llama", "mistral", "qwen2"), _LLAMA),
    **dict.fromkeys(("gemma3_text", "qwen3"), _QWEN3),
    "bloom": (*_fused_qkv("self_attention", "heads"), *_FOUR_TIMES),
    "chatglm": (
        *_fused_qkv("self_attention", _QKV),
        Rule("mlp.dense_h_to_4h", "column", "plain + plain"),
        Rule("mlp.dense_4h_to_h", "row"),
    ),
    "deepseek_v2": (
        Rule("self_attn.q_a_proj", "whole"),
        Rule("self_attn.kv_a_proj_with_mqa", "whole", tail="qk_rope_head_dim"),
        Rule("self_attn.q_proj", "column", "heads"),
        Rule("self_attn.q_b_proj", "column", "heads"),
        Rule("self_attn.kv_b_proj", "column", "heads"),
        Rule("self_attn.o_proj", "row", "heads"),
        *_GATED,
        *_EXPERTS,
        Rule("mlp.experts.*.gate_proj", "column"),
        Rule("mlp.experts.*.up_proj", "column"),
        Rule("mlp.experts.*.down_proj", "row"),
        Rule("mlp.shared_experts.gate_proj", "column"),
        Rule("mlp.shared_experts.up_proj", "column"),
        Rule("mlp.shared_experts.down_proj", "row"),
        Rule("mlp.gate", "whole"),
    ),
    "falcon": (*_fused_qkv("self_attention", "groups"), *_FOUR_TIMES),
    "falcon, one kv head": (*_fused_qkv("self_attention", _QKV), *_FOUR_TIMES),
    "gpt2": (
        Rule("attn.c_attn", "column", "heads + heads + heads", stored="in_out"),
        Rule("attn.c_proj", "row", "heads", stored="in_out"),
        *_mlp("mlp.c_fc", "mlp.c_proj", "in_out"),
    ),
    "gpt_bigcode": (
        Rule("attn.c_attn", "column", _QKV),
        Rule("attn.c_proj", "row", "heads"),
        *_mlp("mlp.c_fc", "mlp.c_proj"),
    ),
    "gpt_neox": (*_fused_qkv("attention", "heads"), *_FOUR_TIMES),
    "gptj": (*_separate_qkv("attn", "out_proj", "heads"), *_mlp("mlp.fc_in", "mlp.fc_out")),
    "mixtral": (
        *_ATTENTION,
        *_EXPERTS,
        Rule("block_sparse_moe.experts.*.w1", "column"),
        Rule("block_sparse_moe.experts.*.w3", "column"),
        Rule("block_sparse_moe.experts.*.w2", "row"),
        Rule("block_sparse_moe.gate", "whole"),
    ),
    "opt": (*_separate_qkv("self_attn", "out_proj", "heads"), *_mlp("fc1", "fc2")),
    "phi": (
        *_separate_qkv("self_attn", "dense", "kv_heads"),
        Rule("self_attn.q_layernorm", "whole", partial_grads=True),
        Rule("self_attn.k_layernorm", "whole", partial_grads=True),
        *_mlp("mlp.fc1", "mlp.fc2"),
    ),
    "phi3": (
        Rule("self_attn.qkv_proj", "column", _QKV),
        Rule("self_attn.o_proj", "row", "heads"),
        *_FUSED_GATED,
    ),
    "starcoder2": (*_ATTENTION, *_mlp("mlp.c_fc", "mlp.c_proj")),
}


def preset_of(config: Any) -> tuple[Rule, ...] | None:
    """The rules for a config's `model_type`, or None."""
    kind = config_value(config, "model_type")
    if kind == "gpt_bigcode" and not config_value(config, "multi_query"):
        return None  # q, k and v are fused per head; no such model is published
    if kind == "chatglm" and config_value(config, "multi_query_attention") is False:
        return None  # likewise
    if kind == "falcon" and not config_value(config, "new_decoder_architecture"):
        kind = "falcon, one kv head" if config_value(config, "multi_query") else "falcon"
    return PRESETS.get(kind) if isinstance(kind, str) else None
