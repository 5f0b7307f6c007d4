"""Mistral and Mixtral: Llama's weights under MaxText's default rope, and experts.

In GGUF a Mistral says that it is a Llama, and is ported as one. MaxText's Mistral has no sliding
window.
"""

from __future__ import annotations

from xlayout.port.families.decoder import decoder_dialects
from xlayout.port.families.weights import ATTENTION, MLP, SIZES, TIED, experts
from xlayout.port.family import Family

__all__ = ["MISTRAL", "MIXTRAL"]

MISTRAL = Family(
    name="mistral",
    architectures=("MistralForCausalLM",),
    sizes=SIZES,
    dialects=decoder_dialects(
        ATTENTION + MLP, gguf=None, ropes={"": "default"}, scaled_queries=True
    ),
    tied=TIED,
    maxtext={"decoder_block": "mistral"},
    defaults={"sliding_window": 4096},
)

MIXTRAL = Family(
    name="mixtral",
    architectures=("MixtralForCausalLM",),
    sizes={**SIZES, "expert": "num_local_experts | num_experts", "active": "num_experts_per_tok"},
    dialects=decoder_dialects(
        ATTENTION + experts("block_sparse_moe", "w1", "w3", "w2", maxtext="MoeBlock_0"),
        gguf="pairs",
        ropes={"": "default"},
        scaled_queries=True,
    ),
    tied=TIED,
    maxtext={"decoder_block": "mixtral"},
    defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": None},
)
