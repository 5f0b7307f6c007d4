"""Qwen 2 with its biases, Qwen 3 with norms of its heads, and Qwen 3 with experts.

All of them rotate halves of a head in every format, and 1/√head_dim stays in their attention.
"""

from __future__ import annotations

from xlayout.port.families.decoder import decoder_dialects
from xlayout.port.families.weights import (
    ATTENTION,
    MLP,
    SIZES,
    TIED,
    Weight,
    experts,
    qkv,
)
from xlayout.port.family import Family

__all__ = ["QWEN2", "QWEN3", "QWEN3_MOE"]

_BIASES = (
    Weight(
        hf="self_attn.q_proj.bias",
        gguf="attn_q.bias",
        maxtext="self_attention/query/bias",
        mcore="self_attention.linear_qkv.bias",
        pattern="(heads dim) -> heads dim",
        part=qkv(0),
    ),
    Weight(
        hf="self_attn.k_proj.bias",
        gguf="attn_k.bias",
        maxtext="self_attention/key/bias",
        mcore="self_attention.linear_qkv.bias",
        pattern="(kv dim) -> kv dim",
        part=qkv(1),
    ),
    Weight(
        hf="self_attn.v_proj.bias",
        gguf="attn_v.bias",
        maxtext="self_attention/value/bias",
        mcore="self_attention.linear_qkv.bias",
        pattern="(kv dim) -> kv dim",
        part=qkv(2),
    ),
)

_NORMS_OF_HEADS = (
    Weight(
        hf="self_attn.q_norm.weight",
        gguf="attn_q_norm.weight",
        maxtext="self_attention/query_norm/scale",
        mcore="self_attention.q_layernorm.weight",
        pattern="dim",
    ),
    Weight(
        hf="self_attn.k_norm.weight",
        gguf="attn_k_norm.weight",
        maxtext="self_attention/key_norm/scale",
        mcore="self_attention.k_layernorm.weight",
        pattern="dim",
    ),
)

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
    sizes={**SIZES, "dim": "head_dim | 128"},
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
