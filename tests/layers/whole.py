"""Whole numbers in layers of torch, whose sums are exact in any order."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["dense", "whole"]


def whole(*shape: int) -> torch.Tensor:
    n = torch.Size(shape).numel()
    return (torch.arange(n) * 5 % 7 - 3).reshape(shape).double()


def dense(into: int, out: int, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(into, out, bias=bias, dtype=torch.float64)
    for parameter in layer.parameters():
        parameter.data = whole(*parameter.shape)
    return layer
