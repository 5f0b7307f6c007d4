"""What the ranks of a pool are asked to do with a model."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh

from tests.tp.models import batch, made
from xlayout import tp

__all__ = ["compared"]


def compared(_rank: int, ranks: int, name: str, options: dict[str, Any]) -> dict[str, float]:
    """How far logits and gradients are from those of the whole model."""
    mesh = init_device_mesh("cpu", (ranks,))
    whole, ids = made(name), batch()
    expected = whole(ids).logits
    expected.square().mean().backward()
    model = tp.parallelize(made(name), mesh, **options)
    plan = tp.plan(whole, ranks, **options)
    logits = model(ids).logits
    logits.square().mean().backward()
    gradients = {name: weight.grad for name, weight in whole.named_parameters()}
    largest = max(float(g.abs().max()) for g in gradients.values())
    far = {"logits": _far(logits, expected, 0)}
    for name, weight in model.named_parameters():
        placed = plan[name]
        part = placed.sharding.layout(mesh.get_local_rank(), placed.shape)(gradients[name])
        far[name] = _far(weight.grad, part, 1e-3 * largest)
    return far


def _far(x: torch.Tensor, y: torch.Tensor, least: float) -> float:
    """The largest difference, in proportion to what is there; some gradients are zero."""
    assert x.shape == y.shape
    x, y = x.detach(), y.detach()
    return float((x - y).abs().max() / max(float(y.abs().max()), least)) if x.numel() else 0.0
