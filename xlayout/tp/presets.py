"""Presets: the rules of well-known models, by the `model_type` of their config."""

from __future__ import annotations

from typing import Any

from xlayout.tp.numbers import said
from xlayout.tp.rules import Rule

__all__ = ["PRESETS", "preset_of"]

_QKV = "heads + kv_heads + kv_heads"

_ATTENTION = (
    Rule("self_attn.q_proj", "column", "heads"),
    Rule("self_attn.k_proj", "column", "kv_heads"),
    Rule("self_attn.v_proj", "column", "kv_heads"),
    Rule("self_attn.o_proj", "row", "heads"),
)
_NORMS_OF_HEADS = (
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
_FOUR_TIMES = (
    Rule("mlp.dense_h_to_4h", "column"),
    Rule("mlp.dense_4h_to_h", "row"),
)

_LLAMA = (*_ATTENTION, *_GATED)
_QWEN3 = (*_LLAMA, *_NORMS_OF_HEADS)


def _fused(attention: str, features: str) -> tuple[Rule, ...]:
    return (
        Rule(f"{attention}.query_key_value", "column", features),
        Rule(f"{attention}.dense", "row", "heads"),
    )


PRESETS: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(("gemma", "gemma2", "granite", "llama", "mistral", "qwen2"), _LLAMA),
    **dict.fromkeys(("gemma3_text", "qwen3"), _QWEN3),
    "bloom": (*_fused("self_attention", "heads"), *_FOUR_TIMES),
    "chatglm": (
        *_fused("self_attention", _QKV),
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
    "falcon": (*_fused("self_attention", "groups"), *_FOUR_TIMES),
    "falcon, one kv head": (*_fused("self_attention", _QKV), *_FOUR_TIMES),
    "gpt2": (
        Rule("attn.c_attn", "column", "heads + heads + heads", stored="in_out"),
        Rule("attn.c_proj", "row", "heads", stored="in_out"),
        Rule("mlp.c_fc", "column", stored="in_out"),
        Rule("mlp.c_proj", "row", stored="in_out"),
    ),
    "gpt_bigcode": (
        Rule("attn.c_attn", "column", _QKV),
        Rule("attn.c_proj", "row", "heads"),
        Rule("mlp.c_fc", "column"),
        Rule("mlp.c_proj", "row"),
    ),
    "gpt_neox": (*_fused("attention", "heads"), *_FOUR_TIMES),
    "gptj": (
        Rule("attn.q_proj", "column", "heads"),
        Rule("attn.k_proj", "column", "heads"),
        Rule("attn.v_proj", "column", "heads"),
        Rule("attn.out_proj", "row", "heads"),
        Rule("mlp.fc_in", "column"),
        Rule("mlp.fc_out", "row"),
    ),
    "mixtral": (
        *_ATTENTION,
        *_EXPERTS,
        Rule("block_sparse_moe.experts.*.w1", "column"),
        Rule("block_sparse_moe.experts.*.w3", "column"),
        Rule("block_sparse_moe.experts.*.w2", "row"),
        Rule("block_sparse_moe.gate", "whole"),
    ),
    "opt": (
        Rule("self_attn.q_proj", "column", "heads"),
        Rule("self_attn.k_proj", "column", "heads"),
        Rule("self_attn.v_proj", "column", "heads"),
        Rule("self_attn.out_proj", "row", "heads"),
        Rule("fc1", "column"),
        Rule("fc2", "row"),
    ),
    "phi": (
        *_ATTENTION[:3],
        Rule("self_attn.q_layernorm", "whole", partial_grads=True),
        Rule("self_attn.k_layernorm", "whole", partial_grads=True),
        Rule("self_attn.dense", "row", "heads"),
        Rule("mlp.fc1", "column"),
        Rule("mlp.fc2", "row"),
    ),
    "phi3": (
        Rule("self_attn.qkv_proj", "column", _QKV),
        Rule("self_attn.o_proj", "row", "heads"),
        *_FUSED_GATED,
    ),
    "starcoder2": (*_ATTENTION, Rule("mlp.c_fc", "column"), Rule("mlp.c_proj", "row")),
}


def preset_of(config: Any) -> tuple[Rule, ...] | None:
    """The rules for a config's `model_type`, or None."""
    kind = said(config, "model_type")
    if kind == "gpt_bigcode" and not said(config, "multi_query"):
        return None  # its heads hold their own q, k and v, and nobody trained such a model
    if kind == "falcon" and not said(config, "new_decoder_architecture"):
        kind = "falcon, one kv head" if said(config, "multi_query") else "falcon"
    return PRESETS.get(kind) if isinstance(kind, str) else None
