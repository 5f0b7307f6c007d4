"""Layers of torch and of one's own, called in the ways that a model may call them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from tests.tp.on_ranks import mesh_of
from xlayout import tp

__all__ = ["alone", "called_wrongly", "encoded", "looked_up", "marked"]

MLP = [tp.Rule("linear1", "column"), tp.Rule("linear2", "row")]


def encoded(_rank: int, ranks: int) -> None:
    """Torch's encoder: in training, in evaluation, and for evaluation with a mask."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 6, dropout=0.0, batch_first=True)
    whole = nn.TransformerEncoder(layer, 2)
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), rules=MLP)
    x, mask = torch.linspace(-1, 1, 48).sin().reshape(2, 3, 8), torch.zeros(2, 3).bool()
    torch.testing.assert_close(model(x), whole(x))
    mask[1, 2] = True  # a place of which nothing is promised
    with torch.no_grad():
        for m in (whole, model):
            m.eval()
        torch.testing.assert_close(model(x), whole(x))
        made = [m(x, src_key_padding_mask=mask).flatten(0, 1)[:5] for m in (model, whole)]
    torch.testing.assert_close(*made)


def looked_up(_rank: int, ranks: int, ids: list[int]) -> str:
    """The error for ids in an embedding of six rows; results are those of the whole."""
    torch.manual_seed(0)
    whole = nn.ModuleDict({"x": nn.Embedding(6, 2)})
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), rules=[tp.Rule("x", "vocab")])
    for dtype in (torch.int32, torch.int64):
        given = torch.tensor(ids, dtype=dtype)
        try:
            made = model["x"](given)
        except IndexError as error:
            return str(error)
        torch.testing.assert_close(made, whole["x"](given))
    return ""


class Pair(nn.Linear):
    """A layer that returns two things."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x), None


class Experts(nn.Module):
    """A module whose results are summed, with two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> Any:
        return x @ self.up.T, None


def _linear(kind: type[nn.Linear] = nn.Linear, bias: bool = False) -> nn.Module:
    return kind(4, 4, bias=bias)


CASES: dict[str, tuple[Any, list[tp.Rule]]] = {
    "row, whole": (_linear, [tp.Rule("x", "row")]),
    "row, whole, with a bias": (lambda: _linear(bias=True), [tp.Rule("x", "row")]),
    "row, pair": (lambda: _linear(Pair), [tp.Rule("x", "row", scatter=True)]),
    "column, pair": (lambda: _linear(Pair), [tp.Rule("x", "column", gather=True)]),
    "tail, pair": (lambda: _linear(Pair), [tp.Rule("x", "whole", tail="rope")]),
    "sum, pair": (Experts, [tp.Rule("x", "sum"), tp.Rule("x.up", "column")]),
    "nothing": (_linear, [tp.Rule("x", "column")]),
}


def called_wrongly(_rank: int, ranks: int, case: str) -> str:
    """The error for a layer that returns a pair, or is given what it cannot take."""
    make, rules = CASES[case]
    model = nn.ModuleDict({"x": make()})
    layer: Any = tp.parallelize(model, mesh_of(ranks), rules=rules, config={"rope": 2})["x"]
    try:
        layer(*[torch.ones(2, 4)] * (case != "nothing"))
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("not refused")


def marked(_rank: int, ranks: int) -> None:
    """What others have written on a parameter is on its part too."""
    model = nn.ModuleDict({"x": nn.Linear(4, 4)})
    vars(model["x"].weight)["no_decay"] = True
    tp.parallelize(model, mesh_of(ranks), rules=[tp.Rule("x", "column", gather=True)])
    assert model["x"].weight.no_decay
    assert model["x"].weight.shape == (2, 4)


class Saved(nn.ModuleDict):
    """A model with the method of transformers."""

    def save_pretrained(self, path: str, state_dict: Any = None) -> str:
        return path if state_dict is None else ""


def alone(_rank: int, ranks: int) -> None:
    """The parts of one rank alone are the whole, and may be saved."""
    model: Any = Saved({"x": nn.Linear(4, 4)})
    tp.parallelize(model, mesh_of((ranks, 1)), rules=[tp.Rule("x", "column")])
    assert model.save_pretrained("there") == "there"
