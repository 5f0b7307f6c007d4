"""The weights of decoders that descend from Llama: a row for each, with its names in every format.

Names omit the prefix that they share in every layer. Sources: `conversion/` of llama.cpp;
`checkpoint_conversion/utils/param_mapping.py` of MaxText; `core/models/gpt/gpt_layer_specs.py` and
the `sharded_state_dict` methods of Megatron-core; `conversion_mapping.py` of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xlayout.port.rules import Part

__all__ = ["ATTENTION", "FIRST", "LAST", "MLP", "SIZES", "TIED", "Weight", "experts", "qkv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One weight of a layer, or of each of its experts.

    Args:
        hf: Its name in Hugging Face's files, inside its layer.
        gguf: Its name in GGUF, inside its block.
        maxtext: Its path in MaxText's tree, inside its layer.
        mcore: Its name in Megatron-core's checkpoints, inside its layer.
        pattern: The layout from Hugging Face to MaxText, layers apart.
        part: Which part it is of Megatron-core's tensor of that name; None for all of it.
        fused: Its name in a model of transformers 5, inside its layer, if one parameter there holds
            all experts: `part` is its part of that, too. None if the name is `hf`.
    """

    hf: str
    gguf: str
    maxtext: str
    mcore: str
    pattern: str
    part: Part | None = None
    fused: str | None = None

    def called(self, key: str, /) -> str:
        """Return its name in a format, by the format's key."""
        name: str | None = getattr(self, key)
        return name or self.hf

    def part_in(self, key: str, /) -> Part | None:
        """Return which part it is of its tensor in a format; None for all of it."""
        return self.part if key == "mcore" or (key == "fused" and self.fused) else None

    @property
    def axes(self) -> str:
        """The canonical axes."""
        return self.pattern.partition(" -> ")[0]


def qkv(index: int, /) -> Part:
    """Return a part of a QKV that is fused group by group: queries (0), keys (1) or values (2)."""
    return Part(("group dim", "dim", "dim"), index)


_GATE, _UP = Part(("mlp", "mlp"), 0), Part(("mlp", "mlp"), 1)

SIZES: Mapping[str, str] = {
    "layer": "num_hidden_layers",
    "vocab": "vocab_size",
    "embed": "hidden_size",
    "mlp": "intermediate_size",
    "heads": "num_attention_heads",
    "kv": "num_key_value_heads | heads",
    "dim": "head_dim | embed / heads",
    "two": "2",
    "half": "dim / two",
    "group": "heads / kv",
}
"""Where nearly all of their configs have the sizes."""

TIED = {"lm_head.weight": "model.embed_tokens.weight"}
"""What is absent if embeddings are tied, and what is used in its place."""

FIRST = (
    Weight(
        hf="model.embed_tokens.weight",
        gguf="token_embd.weight",
        maxtext="token_embedder/embedding",
        mcore="embedding.word_embeddings.weight",
        pattern="vocab embed",
    ),
)

LAST = (
    Weight(
        hf="model.norm.weight",
        gguf="output_norm.weight",
        maxtext="decoder/decoder_norm/scale",
        mcore="decoder.final_layernorm.weight",
        pattern="embed",
    ),
    Weight(
        hf="lm_head.weight",
        gguf="output.weight",
        maxtext="decoder/logits_dense/kernel",
        mcore="output_layer.weight",
        pattern="vocab embed -> embed vocab",
    ),
)

ATTENTION = (
    Weight(
        hf="input_layernorm.weight",
        gguf="attn_norm.weight",
        maxtext="pre_self_attention_layer_norm/scale",
        mcore="self_attention.linear_qkv.layer_norm_weight",
        pattern="embed",
    ),
    Weight(
        hf="self_attn.q_proj.weight",
        gguf="attn_q.weight",
        maxtext="self_attention/query/kernel",
        mcore="self_attention.linear_qkv.weight",
        pattern="(heads two half) embed -> embed heads (two half)",
        part=qkv(0),
    ),
    Weight(
        hf="self_attn.k_proj.weight",
        gguf="attn_k.weight",
        maxtext="self_attention/key/kernel",
        mcore="self_attention.linear_qkv.weight",
        pattern="(kv two half) embed -> embed kv (two half)",
        part=qkv(1),
    ),
    Weight(
        hf="self_attn.v_proj.weight",
        gguf="attn_v.weight",
        maxtext="self_attention/value/kernel",
        mcore="self_attention.linear_qkv.weight",
        pattern="(kv dim) embed -> embed kv dim",
        part=qkv(2),
    ),
    Weight(
        hf="self_attn.o_proj.weight",
        gguf="attn_output.weight",
        maxtext="self_attention/out/kernel",
        mcore="self_attention.linear_proj.weight",
        pattern="embed (heads dim) -> heads dim embed",
    ),
)
"""Attention whose keys and values may have fewer heads, and the norm before it."""


def _norm_before_mlp(mcore: str) -> Weight:
    return Weight(
        hf="post_attention_layernorm.weight",
        gguf="ffn_norm.weight",
        maxtext="post_self_attention_layer_norm/scale",
        mcore=mcore,
        pattern="embed",
    )


MLP = (
    _norm_before_mlp("mlp.linear_fc1.layer_norm_weight"),
    Weight(
        hf="mlp.gate_proj.weight",
        gguf="ffn_gate.weight",
        maxtext="mlp/wi_0/kernel",
        mcore="mlp.linear_fc1.weight",
        pattern="mlp embed -> embed mlp",
        part=_GATE,
    ),
    Weight(
        hf="mlp.up_proj.weight",
        gguf="ffn_up.weight",
        maxtext="mlp/wi_1/kernel",
        mcore="mlp.linear_fc1.weight",
        pattern="mlp embed -> embed mlp",
        part=_UP,
    ),
    Weight(
        hf="mlp.down_proj.weight",
        gguf="ffn_down.weight",
        maxtext="mlp/wo/kernel",
        mcore="mlp.linear_fc2.weight",
        pattern="embed mlp -> mlp embed",
    ),
)
"""A gated MLP, and the norm before it."""


def experts(hf: str, gate: str, up: str, down: str, /, *, maxtext: str) -> tuple[Weight, ...]:
    """Return a router and the three weights of each expert, by their names in a block `hf`."""
    each, mcore = f"{hf}.experts.{{expert}}.", "mlp.experts.experts."
    return (
        _norm_before_mlp("pre_mlp_layernorm.weight"),
        Weight(
            hf=f"{hf}.gate.weight",
            gguf="ffn_gate_inp.weight",
            maxtext=f"{maxtext}/gate/kernel",
            mcore="mlp.router.weight",
            pattern="expert embed -> embed expert",
            fused="mlp.gate.weight",
        ),
        Weight(
            hf=f"{each}{gate}.weight",
            gguf="ffn_gate_exps.weight",
            maxtext=f"{maxtext}/wi_0",
            mcore=f"{mcore}linear_fc1.weight",
            pattern="mlp embed -> expert embed mlp",
            part=_GATE,
            fused="mlp.experts.gate_up_proj",
        ),
        Weight(
            hf=f"{each}{up}.weight",
            gguf="ffn_up_exps.weight",
            maxtext=f"{maxtext}/wi_1",
            mcore=f"{mcore}linear_fc1.weight",
            pattern="mlp embed -> expert embed mlp",
            part=_UP,
            fused="mlp.experts.gate_up_proj",
        ),
        Weight(
            hf=f"{each}{down}.weight",
            gguf="ffn_down_exps.weight",
            maxtext=f"{maxtext}/wo",
            mcore=f"{mcore}linear_fc2.weight",
            pattern="embed mlp -> expert mlp embed",
            fused="mlp.experts.down_proj",
        ),
    )
