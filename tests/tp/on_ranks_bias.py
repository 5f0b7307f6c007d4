"""Parameters that are in no layer with a matrix, and are cut as what they are used on."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import register_pytree_node

from tests.tp.on_ranks import mesh_of
from xlayout import tp
from xlayout.torch import clip_grad_norm_

__all__ = [
    "clipped",
    "frozen",
    "given",
    "narrow",
    "noted",
    "told",
    "turned",
    "weighted",
    "without_numbers",
]


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


def frozen(_rank: int, ranks: int) -> None:
    """If only a norm is trained, the first rank counts its gradient, and the others have none."""
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4), nn.LayerNorm(4))
    whole[:2].requires_grad_(False)
    rules = [tp.Rule("0", "column"), tp.Rule("1", "row")]
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), rules=rules)
    for m in (whole, model):
        m(torch.arange(12.0).reshape(3, 4)).square().sum().backward()
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.1)
    torch.testing.assert_close(clip_grad_norm_(model, 0.1), expected)


class Phases(nn.Module):
    """A complex number for each feature."""

    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.polar(torch.ones(4), torch.linspace(0, 3, 4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both parts of the product, one after the other."""
        return torch.view_as_real(x * self.by).flatten(-2)


def turned(_rank: int, ranks: int) -> None:
    """The norm counts both parts of complex gradients, and is as wide as the widest."""
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4), Phases(), Shift().double())
    rules = [tp.Rule("0", "column"), tp.Rule("1", "row")]
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), rules=rules)
    for m in (whole, model):
        m(torch.ones(3, 4)).square().sum().backward()
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.1)
    torch.testing.assert_close(clip_grad_norm_(model, 0.1), expected)


def narrow(_rank: int, ranks: int) -> None:
    """The norm of narrow gradients may be one that their dtype does not have."""
    whole = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)).half()
    numbers = sum(x.numel() for x in whole.parameters())
    rules = [tp.Rule("0", "column"), tp.Rule("1", "row")]
    model = tp.parallelize(whole, mesh_of(ranks), rules=rules)
    for x in model.parameters():
        x.grad = torch.full_like(x, 2.0**15)
    expected = torch.tensor(2.0**15 * numbers**0.5)
    torch.testing.assert_close(clip_grad_norm_(model, 1e6), expected)


class Weighted(nn.Module):
    """Heads, each of which counts as much as a number of its own says."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q_proj, self.o_proj = nn.Linear(4, 8), nn.Linear(8, 4)
        self.num_heads, self.weights = 4, nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of what the heads make of the input."""
        heads = self.q_proj(x).unflatten(-1, (self.num_heads, -1))
        y: torch.Tensor = self.o_proj((heads * self.weights[:, None]).flatten(-2))
        return y


def weighted(rank: int, ranks: int) -> None:
    """A rank has the numbers of its own heads; results, gradients and norm are those of one."""
    beside: nn.Module = nn.ModuleDict({"layer": nn.Linear(2, 2)})
    beside.gain = nn.Parameter(torch.ones(()))  # where nothing is cut, no rule needs to name it
    whole: nn.Module = nn.ModuleDict({"self_attn": Weighted(), "beside": beside})
    whole.gain = nn.Parameter(torch.ones(()))  # beside attention, not beside what is cut in it
    rules = {"self_attn.weights": "colwise", "self_attn.o_proj": "rowwise", "*attn.*": "colwise"}
    plan = tp.plan(whole, ranks, rules=rules, config={"num_attention_heads": 4})
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), plan=plan)
    made = [m["self_attn"](torch.ones(3, 4)) for m in (whole, model)]
    torch.testing.assert_close(made[1], made[0])
    for y in made:
        y.square().sum().backward()
    gradient, own = whole["self_attn"].weights.grad, model["self_attn"].weights.grad
    torch.testing.assert_close(own, gradient.chunk(ranks)[rank])
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.1)
    torch.testing.assert_close(clip_grad_norm_(model, 0.1), expected)


class Bank(nn.Module):
    """Two matrices in one module, which is told more than its input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Parameter(torch.randn(8, 4)), nn.Parameter(torch.randn(4, 8))

    def forward(self, x: torch.Tensor, ids: torch.Tensor, mask: None, *, n: int) -> torch.Tensor:
        """The product of some rows with both, `n` times."""
        assert mask is None
        y: torch.Tensor = n * (x[ids] @ self.up.T).tanh() @ self.down.T
        return y


def told(_rank: int, ranks: int) -> None:
    """Of the arguments of a module whose results are summed, only numbers have gradients."""
    whole = nn.ModuleDict({"x": Bank()})
    rules = [tp.Rule("x", "sum"), tp.Rule("x.up", "column"), tp.Rule("x.down", "row")]
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), rules=rules)
    seen = []
    for m in (whole, model):
        x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        y = m["x"](x, torch.tensor([2, 0]), None, n=2)
        y.square().sum().backward()
        seen.append((y, x.grad))
    torch.testing.assert_close(seen[1], seen[0])


class Packed(nn.Module):
    """Two matrices in one module, which is given numbers inside something else."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.Parameter(torch.randn(8, 4, dtype=dtype))
        self.down = nn.Parameter(torch.randn(4, 8, dtype=dtype))

    def forward(self, x: Any) -> torch.Tensor:
        """The product with both."""
        x = x["x"] if isinstance(x, dict) else x[0] if isinstance(x, tuple) else x
        y: torch.Tensor = x @ self.up.T @ self.down.T
        return y


def given(_rank: int, ranks: int, kind: str) -> None:
    """The gradient of the input is that of the whole, wherever the module finds it."""
    dtype = torch.complex64 if kind == "complex" else torch.float32
    whole = nn.ModuleDict({"x": Packed(dtype)})
    rules = [tp.Rule("x", "sum"), tp.Rule("x.up", "column"), tp.Rule("x.down", "row")]
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), rules=rules)
    seen = []
    for m in (whole, model):
        x = torch.linspace(-1, 1, 12).reshape(3, 4).to(dtype).requires_grad_()
        y = m["x"]({"tuple": (x, None), "dict": {"x": x, "n": 2}}.get(kind, x))
        y.abs().square().sum().backward()
        seen.append((y, x.grad))
    torch.testing.assert_close(seen[1], seen[0])


def without_numbers(_rank: int, ranks: int, norm_type: float) -> None:
    """A bias of no features, which the first rank counts, changes nothing."""
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4), nn.Linear(4, 0))
    rules = [tp.Rule("0", "column"), tp.Rule("1", "row")]
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), rules=rules)
    for m in (whole, model):
        y = m[:2](torch.ones(3, 4))
        (y.square().sum() + m[2](y).sum()).backward()
    assert whole[2].bias.grad.numel() == 0
    full = [x for x in whole.parameters() if x.numel()]  # torch's own fails with the others
    expected = torch.nn.utils.clip_grad_norm_(full, 0.1, norm_type)
    torch.testing.assert_close(clip_grad_norm_(model, 0.1, norm_type), expected)


class Notes:
    """An object that torch can take apart and make anew."""

    def __init__(self, seen: torch.Tensor) -> None:
        self.seen = seen


class Noted(Packed):
    """The same, which also writes into an object that it is given."""

    def forward(self, x: torch.Tensor, notes: Notes) -> torch.Tensor:
        """The product with both."""
        notes.seen = x
        return super().forward(x)


def noted(_rank: int, ranks: int) -> None:
    """An object that is neither a tuple nor a dict is the one that was given."""
    register_pytree_node(Notes, lambda n: ([n.seen], None), lambda xs, _: Notes(*xs))
    rules = [tp.Rule("x", "sum"), tp.Rule("x.up", "column"), tp.Rule("x.down", "row")]
    model = tp.parallelize(nn.ModuleDict({"x": Noted(torch.float32)}), mesh_of(ranks), rules=rules)
    notes, x = Notes(torch.zeros(3, 4)), torch.ones(3, 4)
    model["x"](x, notes)
    assert torch.equal(notes.seen, x)
