"""Adapters that are layers of their own, as peft makes LoRA, beside the layers of attention."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from tests.tp.models import batch, made
from tests.tp.on_ranks import mesh_of
from tests.tp.on_ranks_uses import Attention, x
from xlayout import tp

__all__ = ["adapted", "adapted_everywhere"]

RULES = [
    tp.Rule("q_proj.base_layer", "column", "heads"),
    tp.Rule("q_proj.lora_B", "column", "heads"),
    tp.Rule("o_proj.base_layer", "row", "heads"),
    tp.Rule("o_proj.lora_A", "row", "heads"),
    tp.Rule("lora_*", "whole"),
    *tp.PRESETS["llama"],
]


class Adapted(nn.Module):
    """A layer, and the product of two small ones beside it."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.base_layer = layer
        self.lora_A = nn.Linear(layer.in_features, 3, bias=False)
        self.lora_B = nn.Linear(3, layer.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both results, added."""
        y: torch.Tensor = self.base_layer(x) + self.lora_B(self.lora_A(x))
        return y


def adapted(rank: int, ranks: int) -> None:
    """Logits, and the gradients of adapters alone, are those of the whole model."""
    whole: Any = made("llama").requires_grad_(False)
    for layer in whole.model.layers:
        layer.self_attn.q_proj = Adapted(layer.self_attn.q_proj)
        layer.self_attn.o_proj = Adapted(layer.self_attn.o_proj)
    plan = tp.plan(whole, ranks, rules=RULES)
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), plan=plan)
    logits = [m(batch()).logits for m in (whole, model)]
    for made_of_it in logits:
        made_of_it.square().mean().backward()
    torch.testing.assert_close(logits[1], logits[0])
    trained = {name: x.grad for name, x in whole.named_parameters() if x.grad is not None}
    assert len(trained) == 2 * 2 * len(whole.model.layers)
    for name, gradient in trained.items():
        part = plan[name].sharding.layout(rank, plan[name].shape)
        torch.testing.assert_close(model.get_parameter(name).grad, part(gradient))


def adapted_everywhere(_rank: int, ranks: int) -> None:
    """Attention of which every layer has an adapter still counts the heads of its rank."""
    whole, rules = Attention(4, 2), [tp.Rule("lora_*", "whole")]
    for name, cut, features, small in (
        ("q_proj", "column", "heads", "lora_B"),
        ("k_proj", "column", "kv_heads", "lora_B"),
        ("v_proj", "column", "kv_heads", "lora_B"),
        ("o_proj", "row", "heads", "lora_A"),
    ):
        setattr(whole.self_attn, name, Adapted(getattr(whole.self_attn, name)))
        for layer in ("base_layer", small):
            rules.insert(0, tp.Rule(f"{name}.{layer}", cut, features))  # type: ignore[arg-type]
    cut_up: Any = copy.deepcopy(whole)
    model = tp.parallelize(cut_up, mesh_of(ranks), rules=rules, config=whole.config)
    torch.testing.assert_close(model(x(3, 8)), whole(x(3, 8)))
