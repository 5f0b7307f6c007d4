"""Layers with a forward of their own are tried on few numbers, in parts and as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from tests.tp.on_ranks_allowed import Gained, Words
from tests.tp.on_ranks_layers import Pair
from tests.tp.on_ranks_refused import Chances, Offset, Rectified, Scaled
from xlayout.errors import ShardingError
from xlayout.torch.parallel.roles import Column, Role, Row, Vocab
from xlayout.torch.parallel.trial import refuse_forward


class Rounded(nn.Linear):
    """Linear in its input, with a step that depends on the whole weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step = self.weight.abs().mean()
        return nn.functional.linear(x, (self.weight / step).round() * step)


class Narrow(nn.Linear):
    """A product in another dtype."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x.bfloat16(), self.weight.bfloat16()) * 0.3


class Adapted(nn.Linear):
    """A layer with matrices of its own size inside."""

    def __init__(self) -> None:
        super().__init__(8, 6, bias=False)
        self.up, self.down = nn.Linear(8, 2, bias=False), nn.Linear(2, 6, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = super().forward(x) + self.down(self.up(x))
        return y


class Unlike(nn.Embedding):
    """Features that depend on one another."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forward(ids).softmax(-1)


class Dropped(nn.Linear):
    """A layer that is random in training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().forward(x), training=self.training)


class Reshaped(nn.Linear):
    """A layer that reads its number of features."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.reshape(-1, self.in_features)).reshape(*x.shape[:-1], -1)


# (the layer, its role, the axis that is cut)
RIGHT: dict[str, tuple[Callable[[], nn.Module], type[Role], int]] = {
    "scaled, by rows": (lambda: Scaled(8, 6, bias=False), Row, 1),
    "scaled, by columns": (lambda: Scaled(8, 6), Column, 0),
    "with a number, by columns": (Gained, Column, 0),
    "rectified, by columns": (lambda: Rectified(8, 6), Column, 0),
    "in another dtype": (lambda: Narrow(8, 6, bias=False), Row, 1),
    "random in training": (lambda: Dropped(8, 6, bias=False), Row, 1),
    "which reads its features": (lambda: Reshaped(8, 6, bias=False), Row, 1),
    "two results": (lambda: Pair(8, 6), Row, 1),
    "with others inside": (Adapted, Row, 1),
    "words": (lambda: Words(8, 6, padding_idx=7), Vocab, 0),
    "one word": (lambda: Words(1, 6), Vocab, 0),
    "more words than can be shifted": (lambda: Words(9, 6), Vocab, 0),
    "words by columns": (lambda: nn.Embedding(8, 6), Column, 1),
}  # fmt: skip
WRONG: dict[str, tuple[Callable[[], nn.Module], type[Role], int]] = {
    "rectified, by rows": (lambda: Rectified(8, 6, bias=False), Row, 1),
    "a step of the whole weight": (lambda: Rounded(8, 6, bias=False), Row, 1),
    "a step of the whole weight, by columns": (lambda: Rounded(8, 6), Column, 0),
    "features of features": (lambda: Chances(8, 6), Column, 0),
    "other words": (lambda: Offset(12, 6), Vocab, 0),
    "words by columns": (lambda: Unlike(12, 6), Column, 1),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("case", RIGHT)
def test_what_is_the_same_in_parts_is_accepted(case: str, device: Any) -> None:
    make, role, axis = RIGHT[case]
    refuse_forward("x.weight", make().to(device), role, axis)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("case", WRONG)
def test_what_is_something_else_in_parts_is_refused(case: str, device: Any) -> None:
    make, role, axis = WRONG[case]
    layer = make().to(device)
    before = {name: id(x) for name, x in layer.named_parameters()}
    with pytest.raises(ShardingError, match=r"model: 'x\.weight' belongs to an? .* forward makes "):
        refuse_forward("x.weight", layer, role, axis)
    assert {name: id(x) for name, x in layer.named_parameters()} == before
    assert layer.training


def test_of_what_has_no_numbers_nothing_is_known() -> None:
    with FakeTensorMode():
        refuse_forward("x.weight", Rectified(8, 6, bias=False), Row, 1)
