"""Tiny random models of transformers, one for each way in which weights are fused."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["MODELS", "batch", "made"]

os.environ["HF_HUB_OFFLINE"] = "1"

_SMALL = {
    "vocab_size": 96,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 12,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LLAMA = {**_SMALL, "intermediate_size": 40}
_GPT = {
    "vocab_size": 96, "n_embd": 48, "n_layer": 2, "n_head": 12, "n_positions": 64,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**_LLAMA, "num_key_value_heads": 4}),
    "llama, biased": (
        "Llama", {**_LLAMA, "num_key_value_heads": 6, "attention_bias": True, "mlp_bias": True}),
    "llama, one kv head": ("Llama", {**_LLAMA, "num_key_value_heads": 1}),
    "mistral": ("Mistral", {**_LLAMA, "num_key_value_heads": 2, "head_dim": 8}),
    "qwen2": ("Qwen2", {**_LLAMA, "num_key_value_heads": 3}),
    "qwen3": ("Qwen3", {**_LLAMA, "num_key_value_heads": 4, "head_dim": 8}),
    "gemma": ("Gemma", {**_LLAMA, "num_key_value_heads": 1, "head_dim": 8}),
    "phi3": ("Phi3", {**_LLAMA, "num_key_value_heads": 6}),
    "phi3, one kv head": ("Phi3", {**_LLAMA, "num_key_value_heads": 1}),
    "phi": ("Phi", {**_LLAMA, "num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "phi, norms of heads": (
        "Phi", {**_LLAMA, "num_key_value_heads": 4, "qk_layernorm": True}),
    "opt": ("OPT", {**_SMALL, "ffn_dim": 40, "word_embed_proj_dim": 48}),
    "bloom": ("Bloom", {k: v for k, v in _SMALL.items() if k != "max_position_embeddings"}),
    "gpt_neox": ("GPTNeoX", _LLAMA),
    "gpt_bigcode": ("GPTBigCode", _GPT),
    "falcon": ("Falcon", {
        **_SMALL, "new_decoder_architecture": True, "num_kv_heads": 4, "alibi": False}),
    "falcon, one kv head": ("Falcon", {
        **_SMALL, "new_decoder_architecture": False, "multi_query": True, "alibi": False}),
    "gpt2": ("GPT2", _GPT),
    "falcon, alibi": ("Falcon", {
        **_SMALL, "new_decoder_architecture": False, "multi_query": False, "alibi": True}),
    "falcon, biased": ("Falcon", {
        **_SMALL, "new_decoder_architecture": False, "multi_query": False, "alibi": True,
        "bias": True}),
    "gptj": ("GPTJ", {**_GPT, "rotary_dim": 4}),
    "starcoder2": ("Starcoder2", {**_LLAMA, "num_key_value_heads": 2}),
    "mixtral": ("Mixtral", {
        **_LLAMA, "num_key_value_heads": 4, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "deepseek_v2": ("DeepseekV2", {
        **_LLAMA, "num_key_value_heads": 12, "q_lora_rank": 12, "kv_lora_rank": 10,
        "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 8, "n_routed_experts": 4,
        "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "first_k_dense_replace": 1, "topk_method": "greedy", "n_group": 1, "topk_group": 1}),
    "olmo2": ("Olmo2", {**_LLAMA, "num_key_value_heads": 4}),
    "cohere": ("Cohere", {**_LLAMA, "num_key_value_heads": 4}),
    "glm4": ("Glm4", {**_LLAMA, "num_key_value_heads": 4, "head_dim": 4}),
    "qwen3_moe": ("Qwen3Moe", {
        **_LLAMA, "num_key_value_heads": 4, "head_dim": 8, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 16}),
    "gemma3_text": ("Gemma3Text", {**_LLAMA, "num_key_value_heads": 4, "head_dim": 8}),
    "granite_swa": ("GraniteSWA", {**_LLAMA, "num_key_value_heads": 4, "sliding_window": 4}),
    "granite": ("Granite", {**_LLAMA, "num_key_value_heads": 4}),
}  # fmt: skip


def made(name: str, **config: Any) -> Any:
    """A model whose attention is far from uniform; the same on every call."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    kind, options = MODELS[name]
    torch.manual_seed(0)
    told = getattr(transformers, f"{kind}Config")(
        **{**options, "initializer_range": 0.15, **config}
    )
    head = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    model = getattr(transformers, kind.removesuffix("Text") + head)(told)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:  # ones in norms and zeros in biases would hide errors
                weight.add_(0.2 * torch.randn_like(weight))
    return model.eval()


def batch() -> Any:
    """Token ids."""
    import torch

    return torch.arange(2 * 7).reshape(2, 7) * 5 % 90 + 3
