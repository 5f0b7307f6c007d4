"""Llama.

GGUF and MaxText's "llama3.1" rotate neighbouring pairs of a head.
"""

from __future__ import annotations

from xlayout.port.families.decoder import decoder_dialects
from xlayout.port.families.weights import ATTENTION, MLP, SIZES, TIED
from xlayout.port.family import Family

__all__ = ["LLAMA"]

LLAMA = Family(
    name="llama",
    architectures=("LlamaForCausalLM",),
    sizes=SIZES,
    dialects=decoder_dialects(
        ATTENTION + MLP,
        gguf="pairs",
        ropes={"": "llama3.1", "-default-rope": "default"},
        scaled_queries=True,
        ignored=("model.layers.{layer}.self_attn.rotary_emb.inv_freq",),
    ),
    tied=TIED,
    maxtext={"decoder_block": "llama2"},
)
