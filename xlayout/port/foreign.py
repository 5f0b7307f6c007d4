"""What tensor names reveal about a checkpoint that follows no family's rules, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["foreign"]

_KINDS = (
    (
        r"\.lora_\w+",
        "an adapter (LoRA); merge it into its model first, as peft's merge_and_unload does",
    ),
    (
        r"\.(qweight|qzeros|SCB|weight_packed|weight_scale(_inv)?|absmax)$|_(blocks|scales)$",
        "quantised weights; dequantise them first, as `dequantize` of transformers' models does "
        "(of GGUF files they are read as they are)",
    ),
    (
        r"layers\.\d+\.attention\.w[qkvo]\.weight$",
        "the names of Meta's and Mistral's own files; take the model in Hugging Face's form",
    ),
)


def foreign(names: Iterable[str], /) -> tuple[str, ...]:
    """Return the kinds of checkpoints that have such names, each with what to do about it.

    >>> foreign(["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"])
    ("an adapter (LoRA); merge it into its model first, as peft's merge_and_unload does",)
    """
    there = tuple(names)
    return tuple(advice for kind, advice in _KINDS if any(re.search(kind, name) for name in there))
