"""Qwen 2 with its biases, Qwen 3 with norms of its heads, and Qwen 3 with experts.

All of them rotate halves of a head, in every format, and their attention has its 1/√head_dim.
"""

from __future__ import annotations

from xlayout.port.families.decoder import (
    ATTENTION,
    MLP,
    SIZES,
    TIED,
    Weight,
    decoder_dialects,
    experts,
)
from xlayout.port.family import Family

__all__ = ["QWEN2", "QWEN3", "QWEN3_MOE"]

_BIASES = (
    Weight(
        "self_attn.q_proj.bias",
        "attn_q.bias",
        "self_attention/query/bias",
        "(heads dim) -> heads dim",
    ),
    Weight("self_attn.k_proj.bias", "attn_k.bias", "self_attention/key/bias", "(kv dim) -> kv dim"),
    Weight(
        "self_attn.v_proj.bias", "attn_v.bias", "self_attention/value/bias", "(kv dim) -> kv dim"
    ),
)

_NORMS_OF_HEADS = (
    Weight(
        "self_attn.q_norm.weight", "attn_q_norm.weight", "self_attention/query_norm/scale", "dim"
    ),
    Weight("self_attn.k_norm.weight", "attn_k_norm.weight", "self_attention/key_norm/scale", "dim"),
)

_SIZES_OF_3 = {**SIZES, "dim": "head_dim | 128"}
_UNWINDOWED = {"use_sliding_window": False}

QWEN2 = Family(
    name="qwen2",
    architectures=("Qwen2ForCausalLM",),
    sizes=SIZES,
    dialects=decoder_dialects(
        ATTENTION + _BIASES + MLP, gguf="halves", ropes={"": "default"}, scaled_queries=False
    ),
    tied=TIED,
    maxtext={"decoder_block": "qwen2", "attention_bias": True, "use_qk_norm": False},
    defaults=_UNWINDOWED,
)

QWEN3 = Family(
    name="qwen3",
    architectures=("Qwen3ForCausalLM",),
    sizes=_SIZES_OF_3,
    dialects=decoder_dialects(
        ATTENTION + _NORMS_OF_HEADS + MLP,
        gguf="halves",
        ropes={"": "default"},
        scaled_queries=False,
    ),
    tied=TIED,
    maxtext={"decoder_block": "qwen3", "attention_bias": False, "use_qk_norm": True},
    defaults=_UNWINDOWED,
)

QWEN3_MOE = Family(
    name="qwen3-moe",
    architectures=("Qwen3MoeForCausalLM",),
    sizes={
        **SIZES,
        "mlp": "moe_intermediate_size",
        "expert": "num_experts | num_local_experts",
        "active": "num_experts_per_tok",
    },
    dialects=decoder_dialects(
        ATTENTION
        + _NORMS_OF_HEADS
        + experts("mlp", "gate_proj", "up_proj", "down_proj", maxtext="moe_block"),
        gguf="halves",
        ropes={"": "default"},
        scaled_queries=False,
    ),
    tied=TIED,
    maxtext={
        "decoder_block": "qwen3_moe",
        "attention_bias": False,
        "use_qk_norm": True,
        "norm_topk_prob": True,
    },
    defaults={**_UNWINDOWED, "norm_topk_prob": False},
)
