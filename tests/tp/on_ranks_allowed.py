"""Models that look like those that are refused, and are right on several ranks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.tp.on_ranks import mesh_of
from tests.tp.on_ranks_refused import Packed, Scaled
from xlayout import tp, wire_bytes

__all__ = ["CASES", "compared", "gathered"]


class Chain(nn.Sequential):
    """Layers, beside which there is a number."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.gain = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = super().forward(x) * self.gain
        return y


class Two(nn.Module):
    """Two layers, a number between them and one behind."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)
        self.inner, self.outer = (nn.Parameter(torch.tensor(2.0)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(self.up(x).tanh() * self.inner) * self.outer
        return y


class Gained(nn.Linear):
    """A linear layer with a number of its own."""

    def __init__(self) -> None:
        super().__init__(4, 6, bias=False)
        self.gain = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.gain


class Words(nn.Embedding):
    """An embedding whose rows are normed and scaled."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(super().forward(ids), dim=-1) * self.embedding_dim**0.5


def spoken() -> nn.Module:
    return nn.Sequential(Words(7, 4, padding_idx=6), Scaled(4, 3, bias=False))


def chain(*inner: nn.Module, first: nn.Module | None = None) -> nn.Module:
    """Two layers with something between them, and room for one rank's part there."""
    return nn.Sequential(first or nn.Linear(4, 6), *inner, nn.Tanh(), nn.Linear(6, 4))


def gained() -> nn.Module:
    return Chain(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))


def frozen(module: nn.Module) -> nn.Module:
    """The module, without a gradient for what is in no layer."""
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("gain" not in name)
    return module


def packed() -> nn.Module:
    model = chain(nn.Tanh(), nn.Linear(6, 6))
    model[2].weight = Packed(model[2].weight.detach())  # type: ignore[index]
    return model


def normed() -> nn.Module:
    norm: Any = nn.utils.parametrizations.weight_norm
    return chain(nn.Tanh(), norm(nn.Linear(6, 6)))


def tied() -> nn.Module:
    """Words looked up, and found again by the same matrix."""
    model = nn.Sequential(nn.Embedding(7, 4), nn.Tanh(), nn.Linear(4, 7, bias=False))
    model[2].weight = model[0].weight
    return model


def twice() -> nn.Module:
    """One layer under two names."""
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer)


def activated() -> nn.Module:
    """An activation that is learned no more."""
    model = nn.ModuleDict({"up": nn.Linear(4, 6), "act_fn": nn.PReLU(), "down": nn.Linear(6, 4)})
    model["act_fn"].requires_grad_(False)
    return Called(model)


class Called(nn.Module):
    """The layers of a dict, one after the other."""

    def __init__(self, layers: nn.ModuleDict) -> None:
        super().__init__()
        self.mlp = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.mlp.values():
            x = layer(x)
        return x


UP, DOWN = tp.Rule("0", "column"), tp.Rule("2", "row")
WHOLE = [tp.Rule("0", "column", gather=True), tp.Rule("2", "row", scatter=True)]
MLP = [tp.Rule("up", "column"), tp.Rule("down", "row")]
CASES: dict[str, tuple[Callable[[], nn.Module], list[tp.Rule]]] = {
    "another class, whole": (packed, [tp.Rule("0", "column", gather=True)]),
    "a norm of its weight, whole": (
        normed, [tp.Rule("0", "column", gather=True), tp.Rule("2", "whole")]),
    "tied, and gathered": (tied, [tp.Rule("0", "vocab"), tp.Rule("2", "column", gather=True)]),
    "words, and a sum, with forwards of their own": (
        spoken, [tp.Rule("0", "vocab"), tp.Rule("1", "row", scatter=True)]),
    "a sum of nothing": (gained, [tp.Rule("0", "sum"), tp.Rule("2", "row", scatter=True)]),
    "two layers as one, gathered": (
        lambda: nn.Sequential(nn.Linear(4, 6)),
        [tp.Rule("0", "column", "plain + plain", gather=True)]),
    "beside gathered results": (gained, WHOLE),
    "beside, named": (gained, [UP, DOWN, tp.Rule("gain", "whole")]),
    "beside, not learned": (lambda: frozen(gained()), [UP, DOWN]),
    "beside, both named": (
        Two, [*MLP, tp.Rule("inner", "whole", partial_grads=True), tp.Rule("outer", "whole")]),
    "inside, named": (
        lambda: chain(first=Gained()), [UP, DOWN, tp.Rule("0.gain", "whole", partial_grads=True)]),
    "inside, not learned": (lambda: frozen(chain(first=Gained())), [UP, DOWN]),
    "an activation, not learned": (activated, MLP),
    "one layer, two names": (
        twice, [tp.Rule(str(at), "column", gather=True) for at in (0, 2)]),
}  # fmt: skip


def gathered(_rank: int, ranks: int) -> dict[str, int]:
    """The bytes of three rows of results, of which ranks have unequal parts."""
    rules = [tp.Rule("0", "column", gather=True)]
    model = tp.parallelize(nn.Sequential(nn.Linear(4, 7)), mesh_of(ranks), rules=rules)
    return wire_bytes(model, torch.ones(3, 4))


def compared(rank: int, ranks: int, case: str) -> None:
    """Results and gradients are those of the whole."""
    torch.manual_seed(0)
    make, rules = CASES[case]
    whole = make()
    plan = tp.plan(whole, ranks, rules=rules)
    model: Any = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), plan=plan)
    ids = isinstance(whole, nn.Sequential) and isinstance(whole[0], nn.Embedding)
    x = torch.tensor([0, 3, 4, 6]) if ids else torch.linspace(-1, 1, 12).reshape(3, 4)
    made = [m(x) for m in (whole, model)]
    torch.testing.assert_close(made[1], made[0])
    for y in made:
        y.square().sum().backward()
    for name, weight in model.named_parameters():
        expected: Any = whole.get_parameter(name).grad
        if expected is None:
            assert weight.grad is None
            continue
        part = plan[name].sharding.layout(rank, plan[name].shape)
        torch.testing.assert_close(weight.grad, part(expected))
