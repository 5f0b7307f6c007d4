"""A bias that is in no layer with a matrix, and is cut as what it is added to."""

from __future__ import annotations

import copy

import torch
from torch import nn

from tests.tp.on_ranks import mesh_of
from xlayout import tp
from xlayout.torch import clip_grad_norm_

__all__ = ["clipped"]


class Shift(nn.Module):
    """A layer that only adds."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(-1, 1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The input plus the bias."""
        return x + self.bias


def clipped(_rank: int, ranks: int) -> None:
    """The norm is that of the whole model."""
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(4, 8), Shift(), nn.Tanh(), nn.Linear(8, 4))
    rules = [tp.Rule("0", "column"), tp.Rule("1", "column"), tp.Rule("3", "row")]
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), rules=rules)
    for m in (whole, model):
        m(torch.ones(3, 4)).square().sum().backward()
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.1)
    torch.testing.assert_close(clip_grad_norm_(model, 0.1), expected)
