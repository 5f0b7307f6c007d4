"""Attention that keeps its number of heads in one place or another."""

from __future__ import annotations

import copy
from collections.abc import Callable
from operator import attrgetter, itemgetter
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tests.tp.on_ranks import mesh_of
from xlayout import tp
from xlayout.errors import ShardingError

__all__ = ["CASES", "counted"]

RULES = [
    tp.Rule("*q", "column", "heads"),
    tp.Rule("*k", "column", "kv_heads"),
    tp.Rule("*v", "column", "kv_heads"),
    tp.Rule("*o", "row", "heads"),
    tp.Rule("scales", "column", "heads"),
    tp.Rule("core.norm", "whole", partial_grads=True),
    tp.Rule("o.0", "row", "heads"),
    tp.Rule("bank.*", "column", gather=True),
]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: int, kv: int) -> torch.Tensor:
    """Attention with this many heads."""
    q, k, v = (
        y.unflatten(-1, (n, -1)).transpose(-2, -3) for y, n in ((q, heads), (k, kv), (v, kv))
    )
    k, v = (y.repeat_interleave(heads // kv, -3) for y in (k, v))
    return ((q @ k.mT).softmax(-1) @ v).transpose(-2, -3).flatten(-2)


class Plain(nn.Module):
    """Attention with a number of heads in its module."""

    def __init__(self, heads: int = 4, kv: int = 4) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv, 4 * heads
        self.q, self.k = nn.Linear(self.width, self.width), nn.Linear(self.width, 4 * kv)
        self.v, self.o = nn.Linear(self.width, 4 * kv), nn.Linear(self.width, self.width)

    def counts(self) -> tuple[int, int]:
        """How many heads for queries, and for keys and values."""
        return self.heads, self.kv_heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.o(attend(self.q(x), self.k(x), self.v(x), *self.counts()))
        return y


class Core(nn.Module):
    """The part of attention that has no weights."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.num_heads, self.attn_dropout = heads, nn.Dropout(0.1)
        self.norm = nn.LayerNorm(4)

    def forward(self, *qkv: torch.Tensor) -> torch.Tensor:
        made = attend(*qkv, self.num_heads, self.num_heads)
        y: torch.Tensor = self.norm(made.unflatten(-1, (self.num_heads, -1))).flatten(-2)
        return y


class Inner(Plain):
    """Attention of which a submodule counts the heads."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__(heads, heads)
        del self.heads, self.kv_heads
        self.core = Core(heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.o(self.core(self.q(x), self.k(x), self.v(x)))
        return y


class Deep(nn.Module):
    """Attention that counts its heads two modules above those of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.made_o = 4, nn.Linear(16, 16)
        self.made = nn.ModuleDict({n: nn.ModuleDict({n: nn.Linear(16, 16)}) for n in "qkv"})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = (layer[name](x) for name, layer in self.made.items())  # type: ignore[operator]
        y: torch.Tensor = self.made_o(attend(*qkv, self.num_heads, self.num_heads))
        return y


class Told(Plain):
    """Attention that reads the number from what it keeps under some name."""

    def __init__(self, name: str, config: Any, read: Callable[[Any], int]) -> None:
        super().__init__()
        del self.heads, self.kv_heads
        self.name, self.read, self.split_heads = name, read, True
        setattr(self, name, config)

    def counts(self) -> tuple[int, int]:
        heads = self.read(getattr(self, self.name))
        return heads, heads


class Short(Plain):
    """Attention with short names."""

    def __init__(self) -> None:
        super().__init__()
        del self.heads, self.kv_heads
        self.config = SimpleNamespace(scale=1.0)  # names no heads, and stays as it is
        self.h, self.d_head, self.heads_per_group = 4, 4, 4

    def counts(self) -> tuple[int, int]:
        assert type(self.config) is SimpleNamespace
        assert self.d_head == self.heads_per_group == 4
        return self.h, self.h


class Scaled(Plain):
    """Attention in groups, of which every head has a number."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.scales = nn.Parameter(torch.linspace(1, 2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = attend(self.q(x), self.k(x), self.v(x), *self.counts())
        y: torch.Tensor = self.o(
            (made.unflatten(-1, (self.heads, -1)) * self.scales[:, None]).flatten(-2)
        )
        return y


class Relative(Plain):
    """Attention with a table that has a column for each head, as T5 has."""

    def __init__(self) -> None:
        super().__init__()
        self.relative = nn.Embedding(3, 4)
        self.steps = nn.Embedding(3, 16)  # has other columns

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.steps(torch.arange(3))
        v = self.v(x).unflatten(-1, (self.heads, -1)) * self.relative(torch.arange(3))[:, :, None]
        y: torch.Tensor = self.o(attend(self.q(x), self.k(x), v.flatten(-2), *self.counts()))
        return y


class Index(nn.Module):
    """A module with weights, which every rank has whole, and heads of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.n_heads, self.weight = 4, nn.Parameter(torch.eye(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts: torch.Tensor = (x @ self.weight).unflatten(-1, (self.n_heads, -1))
        return parts.amax(-1).sum(-1, keepdim=True)


class Indexed(Plain):
    """Attention with such a module, flags, and lists of modules that are no heads."""

    def __init__(self) -> None:
        super().__init__(4, 1)
        self.index, self.share_kv_heads = Index(), True
        self.o = nn.ModuleList([self.o])  # type: ignore[assignment]
        self.drops = nn.ModuleList([nn.Identity()])
        self.bank = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.share_kv_heads is True
        x = x * self.index(x).sigmoid()
        y: torch.Tensor = self.o[0](  # type: ignore[index]
            attend(self.q(x), self.k(x), self.v(x), *self.counts())
        )
        for layer in self.bank:
            y = y + layer(y).tanh()
        return y


class Partitioned(nn.Module):
    """Attention of ChatGLM's own code, fused."""

    def __init__(self) -> None:
        super().__init__()
        self.num_attention_heads_per_partition = 4
        self.num_multi_query_groups_per_partition = 2
        self.hidden_size_per_attention_head, self.hidden_size_per_partition = 4, 16
        self.query_key_value, self.dense = nn.Linear(16, 32), nn.Linear(16, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads, kv = (
            self.num_attention_heads_per_partition,
            self.num_multi_query_groups_per_partition,
        )
        qkv = self.query_key_value(x).split([4 * heads, 4 * kv, 4 * kv], -1)
        made = attend(*qkv, heads, kv)
        y: torch.Tensor = self.dense(made.reshape(*x.shape[:-1], self.hidden_size_per_partition))
        return y


def put(model: nn.Module, name: str, number: int) -> nn.Module:
    """The model with this attribute, if perhaps of a submodule."""
    owner, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(owner), attribute, number)
    return model


N_HEADS = attrgetter("n_heads")
COLUMNS = tp.Rule("relative", "column", "heads", stored="in_out")
CASES: dict[str, Callable[[], nn.Module]] = {
    "a submodule": Inner,
    "far above the layers": Deep,
    "cfg": lambda: Told("cfg", SimpleNamespace(n_heads=4), N_HEADS),
    "args": lambda: Told("args", SimpleNamespace(n_heads=4), N_HEADS),
    "a dict": lambda: Told("config", {"n_heads": 4}, itemgetter("n_heads")),
    "short names": Short,
    "beside others": Indexed,
    "grouped": Scaled,
    "by itself": Plain,
    "beside others, by itself": Indexed,
    "chatglm": Partitioned,
    "unequal": lambda: Inner(3),
    "other numbers": lambda: put(Plain(), "memory_heads", 7),
    "a column for each head": Relative,
    "one without a rule": Relative,
    "one": lambda: put(Plain(), "heads", 2),
    "one of a config": lambda: Told("cfg", SimpleNamespace(n_heads=2), N_HEADS),
    "one of a submodule": lambda: put(Inner(), "core.num_heads", 8),
}


class Around(nn.Module):
    """A model that has attention in it, and counts all heads."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.num_heads, self.self_attention = 4, attention

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.self_attention(x)
        return y


def counted(rank: int, ranks: int, case: str, training: bool = False) -> str:
    """The error of a case, if it has one; else results and gradients are those of the whole."""
    torch.manual_seed(0)
    attention = CASES[case]().eval()
    whole: Any = attention if case.endswith("by itself") else Around(attention)
    heads = {"unequal": 3}.get(case, 4)
    kv_heads = {"beside others": 1, "chatglm": 2, "grouped": 2}.get(case.split(",")[0], heads)
    options: dict[str, Any] = {
        "config": {"num_attention_heads": heads, "multi_query_group_num": kv_heads},
        "rules": case if case in tp.PRESETS else RULES + [COLUMNS] * case.startswith("a column"),
    }
    try:
        plan = tp.plan(whole, ranks, **options)
        model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), **options).train(training)
        x = torch.linspace(-1, 1, 6 * 4 * heads).sin().reshape(2, 3, 4 * heads)
        made = [m(x) for m in (whole, model)]
    except ShardingError as error:
        return str(error)
    torch.testing.assert_close(made[1], made[0])
    assert isinstance(model, Plain) or model.num_heads == 4
    for y in made:
        y.square().sum().backward()
    for name, weight in model.named_parameters():
        part = plan[name].sharding.layout(rank, plan[name].shape)
        expected: Any = whole.get_parameter(name).grad
        torch.testing.assert_close(weight.grad, part(expected), rtol=1e-4, atol=1e-5)
    return ""
