"""Llama: the rules between Hugging Face, GGUF and MaxText names and layouts.

Hugging Face rotates halves of a head (rotate_half), GGUF and MaxText's "llama3.1" rotate
neighbouring pairs: `(heads two half)` becomes `(heads half two)`. MaxText has no 1/√head_dim in
its attention, so its query kernels carry it. Sources: `conversion/llama.py` of llama.cpp,
`checkpoint_conversion/utils/param_mapping.py` of MaxText.
"""

from __future__ import annotations

import re
from dataclasses import replace

from xlayout.port.family import Dialect, Family
from xlayout.port.rules import Power, Rule

__all__ = ["LLAMA"]

_HF = "model.layers.{layer}."

_CANONICAL = (
    ("model.embed_tokens.weight", "vocab embed"),
    (_HF + "input_layernorm.weight", "embed"),
    (_HF + "self_attn.q_proj.weight", "(heads dim) embed"),
    (_HF + "self_attn.k_proj.weight", "(kv dim) embed"),
    (_HF + "self_attn.v_proj.weight", "(kv dim) embed"),
    (_HF + "self_attn.o_proj.weight", "embed (heads dim)"),
    (_HF + "post_attention_layernorm.weight", "embed"),
    (_HF + "mlp.gate_proj.weight", "mlp embed"),
    (_HF + "mlp.up_proj.weight", "mlp embed"),
    (_HF + "mlp.down_proj.weight", "embed mlp"),
    ("model.norm.weight", "embed"),
    ("lm_head.weight", "vocab embed"),
)

_BLK = "blk.{layer}."

_GGUF = (
    ("model.embed_tokens.weight", "token_embd.weight", "vocab embed"),
    (_HF + "input_layernorm.weight", _BLK + "attn_norm.weight", "embed"),
    (
        _HF + "self_attn.q_proj.weight",
        _BLK + "attn_q.weight",
        "(heads two half) embed -> (heads half two) embed",
    ),
    (
        _HF + "self_attn.k_proj.weight",
        _BLK + "attn_k.weight",
        "(kv two half) embed -> (kv half two) embed",
    ),
    (_HF + "self_attn.v_proj.weight", _BLK + "attn_v.weight", "(kv dim) embed"),
    (_HF + "self_attn.o_proj.weight", _BLK + "attn_output.weight", "embed (heads dim)"),
    (_HF + "post_attention_layernorm.weight", _BLK + "ffn_norm.weight", "embed"),
    (_HF + "mlp.gate_proj.weight", _BLK + "ffn_gate.weight", "mlp embed"),
    (_HF + "mlp.up_proj.weight", _BLK + "ffn_up.weight", "mlp embed"),
    (_HF + "mlp.down_proj.weight", _BLK + "ffn_down.weight", "embed mlp"),
    ("model.norm.weight", "output_norm.weight", "embed"),
    ("lm_head.weight", "output.weight", "vocab embed"),
)

_TREE = "params/params/"
_LAYER = _TREE + "decoder/layers_{layer}/"


def _maxtext(*, rope: str) -> tuple[Rule, ...]:
    order = {"llama3.1": "half two", "default": "two half"}[rope]
    attention, mlp = _LAYER + "self_attention/", _LAYER + "mlp/"
    return (
        Rule("model.embed_tokens.weight", _TREE + "token_embedder/embedding", "vocab embed"),
        Rule(
            _HF + "input_layernorm.weight", _LAYER + "pre_self_attention_layer_norm/scale", "embed"
        ),
        Rule(
            _HF + "self_attn.q_proj.weight",
            attention + "query/kernel",
            f"(heads two half) embed -> embed heads ({order})",
            scale=Power("dim", -0.5),
        ),
        Rule(
            _HF + "self_attn.k_proj.weight",
            attention + "key/kernel",
            f"(kv two half) embed -> embed kv ({order})",
        ),
        Rule(
            _HF + "self_attn.v_proj.weight",
            attention + "value/kernel",
            "(kv dim) embed -> embed kv dim",
        ),
        Rule(
            _HF + "self_attn.o_proj.weight",
            attention + "out/kernel",
            "embed (heads dim) -> heads dim embed",
        ),
        Rule(
            _HF + "post_attention_layernorm.weight",
            _LAYER + "post_self_attention_layer_norm/scale",
            "embed",
        ),
        Rule(_HF + "mlp.gate_proj.weight", mlp + "wi_0/kernel", "mlp embed -> embed mlp"),
        Rule(_HF + "mlp.up_proj.weight", mlp + "wi_1/kernel", "mlp embed -> embed mlp"),
        Rule(_HF + "mlp.down_proj.weight", mlp + "wo/kernel", "embed mlp -> mlp embed"),
        Rule("model.norm.weight", _TREE + "decoder/decoder_norm/scale", "embed"),
        Rule("lm_head.weight", _TREE + "decoder/logits_dense/kernel", "vocab embed -> embed vocab"),
    )


def _scanned(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Stack the layers at axis 1, as `param_scan_axis: 1` and one `layers` subtree do."""
    return tuple(_stacked(rule) if rule.per_layer else rule for rule in rules)


def _stacked(rule: Rule) -> Rule:
    left, _, right = rule.pattern.partition(" -> ")
    first, *rest = re.findall(r"\([^)]*\)|\w+", right or left)
    return replace(
        rule,
        target=rule.target.replace("layers_{layer}", "layers"),
        pattern=f"{left} -> {' '.join((first, 'layer', *rest))}",
    )


LLAMA = Family(
    name="llama",
    architectures=("LlamaForCausalLM",),
    sizes={
        "layer": "num_hidden_layers",
        "vocab": "vocab_size",
        "embed": "hidden_size",
        "mlp": "intermediate_size",
        "heads": "num_attention_heads",
        "kv": "num_key_value_heads | heads",
        "dim": "head_dim | embed / heads",
        "two": "2",
        "half": "dim / two",
    },
    dialects={
        "hf": Dialect(
            "safetensors",
            tuple(Rule(name, name, pattern) for name, pattern in _CANONICAL),
            ignored=(_HF + "self_attn.rotary_emb.inv_freq",),
        ),
        "gguf": Dialect(
            "gguf",
            tuple(Rule(*row) for row in _GGUF),
            ignored=("rope_freqs.weight",),  # the config says it; `rope_factors` sees that it does
        ),
        "maxtext": Dialect(
            "maxtext",
            _scanned(_maxtext(rope="llama3.1")),
            config={"scan_layers": True, "param_scan_axis": 1, "rope_type": "llama3.1"},
        ),
        "maxtext-unscanned": Dialect(
            "maxtext",
            _maxtext(rope="llama3.1"),
            config={"scan_layers": False, "rope_type": "llama3.1"},
        ),
        "maxtext-default-rope": Dialect(
            "maxtext",
            _scanned(_maxtext(rope="default")),
            config={"scan_layers": True, "param_scan_axis": 1, "rope_type": "default"},
        ),
        "maxtext-default-rope-unscanned": Dialect(
            "maxtext",
            _maxtext(rope="default"),
            config={"scan_layers": False, "rope_type": "default"},
        ),
    },
    tied=frozenset({"lm_head.weight"}),
)
