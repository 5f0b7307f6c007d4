"""One block of a Llama with everything fused, and a plan for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from xlayout.tp import TensorPlan, plan

__all__ = ["CONFIG", "planned", "weights"]

CONFIG = {"num_attention_heads": 12, "num_key_value_heads": 6}


def weights() -> dict[str, np.ndarray]:
    """One block of a Llama with everything fused; all numbers differ."""
    shapes = {
        "self_attn.qkv_proj.weight": (12 * 2 + 2 * 6 * 2, 24),
        "self_attn.qkv_proj.bias": (12 * 2 + 2 * 6 * 2,),
        "self_attn.o_proj.weight": (24, 24),
        "self_attn.o_proj.bias": (24,),
        "mlp.gate_up_proj.weight": (2 * 10, 24),
        "mlp.down_proj.weight": (24, 10),
        "norm.weight": (24,),
        "embed.weight": (30, 24),
    }
    at, made = 0, {}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        made[name] = np.arange(at, at + size, dtype=np.float32).reshape(shape)
        at += size
    return made


def planned(x: dict[str, Any], parts: int) -> TensorPlan:
    return plan(x, parts, rules="phi3", config=CONFIG)
