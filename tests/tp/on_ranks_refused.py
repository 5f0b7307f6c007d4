"""Models with a layer that cannot be cut, although its name and shape are those of one that can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from tests.tp.models import made
from xlayout import tp

__all__ = ["BETWEEN", "LAYERS", "Chances", "Offset", "Packed", "Rectified", "Scaled"]

BETWEEN = (
    "q_norm", "k_norm", "query_norm", "key_norm", "q_layernorm", "k_layer_norm", "qnorm",
    "query_layer_norm", "act", "activation", "act_fn", "activation_func",
)  # fmt: skip
"""Names of norms of heads, and of activations."""


class Scaled(nn.Linear):
    """A linear layer that does something more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice the product."""
        return 2 * super().forward(x)


class Adapted(nn.Linear):
    """A linear layer with an additional weight."""

    def __init__(self) -> None:
        super().__init__(4, 4, bias=False)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product, scaled."""
        return super().forward(x) * self.gain


class Rectified(nn.Linear):
    """A layer with an activation in it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product, where it is positive."""
        return super().forward(x).relu()


class Chances(nn.Linear):
    """A layer whose features depend on one another."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features that add up to one."""
        return super().forward(x).softmax(-1)


class Offset(nn.Embedding):
    """An embedding with rows of its own before those of the words."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The row two after that of the id."""
        return super().forward(ids + 2)


class Shifted(nn.Module):
    """A layer that adds a bias, and has a weight of which no rank has a part."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(4))


class Packed(nn.Parameter):
    """A parameter of another class."""


def _hooked() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.forward = lambda x: x  # type: ignore[method-assign, assignment]
    return layer


def _packed() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.weight = Packed(torch.ones(4, 4))
    return layer


def _sparse() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.weight = nn.Parameter(torch.eye(4).to_sparse())
    return layer


def _transposed() -> nn.Module:
    from transformers.pytorch_utils import Conv1D

    layer: nn.Module = Conv1D(4, 4)
    return layer


def _listened(register: str) -> nn.Module:
    layer = nn.Linear(4, 4)
    getattr(layer.weight, register)(lambda _: None)
    return layer


def _normed() -> nn.Module:
    layer: nn.Module = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    return layer


def _flat(model: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


def _wrapped(wrap: Callable[[nn.Module], nn.Module]) -> tuple[nn.Module, Any, Any]:
    return wrap(nn.ModuleDict({"x": nn.Linear(4, 4)})), [tp.Rule("x", "column")], {}


def _shared() -> tuple[nn.Module, Any, Any]:
    layer = nn.Linear(4, 4)
    rules = [tp.Rule("x", "column", gather=True), tp.Rule("y", "column")]
    return nn.ModuleDict({"x": layer, "y": layer}), rules, {}


def _norm() -> tuple[nn.Module, Any, Any]:
    attention = nn.ModuleDict({"q_proj": nn.Linear(4, 4), "q_norm": nn.LayerNorm(2)})
    rules = [tp.Rule("q_proj", "column", "heads")]
    return nn.ModuleDict({"x": attention}), rules, {"config": {"num_attention_heads": 2}}


class Gamma(nn.Module):
    """A number for each feature."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(shape or (4,)))


class Slope(nn.Module):
    """An activation whose parameter has a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(()))


def _between(name: str) -> Callable[[], tuple[nn.Module, Any, Any]]:
    inner: nn.Module = Slope() if name == "act" else nn.LayerNorm(2, bias=False)
    layers = {"q": nn.Linear(4, 4), name: inner, "o": nn.Linear(4, 4)}
    rules = [tp.Rule("q", "column"), tp.Rule("o", "row")]
    return lambda: (nn.ModuleDict({"x": nn.ModuleDict(layers)}), rules, {})


def _words(**option: Any) -> Callable[[], tuple[nn.Module, Any, Any]]:
    return _layer(lambda: nn.Embedding(8, 4, **option), "vocab")


def _activation() -> tuple[nn.Module, Any, Any]:
    layers = {"up": nn.Linear(4, 4), "act_fn": nn.PReLU(), "down": nn.Linear(4, 4)}
    rules = [tp.Rule("up", "column"), tp.Rule("down", "row")]
    return nn.ModuleDict({"mlp": nn.ModuleDict(layers)}), rules, {}


def _temperature() -> tuple[nn.Module, Any, Any]:
    attention: nn.Module = nn.ModuleDict({"q_proj": nn.Linear(4, 4)})
    attention.temperature = nn.Parameter(torch.ones(()))
    rules = [tp.Rule("q_proj", "column", "heads")]
    return nn.ModuleDict({"x": attention}), rules, {"config": {"num_attention_heads": 2}}


def _unlike() -> tuple[nn.Module, Any, Any]:
    attention = nn.ModuleDict({"q_proj": nn.Linear(4, 4), "q_norm": nn.LayerNorm((2, 2))})
    rules = [tp.Rule("q_proj", "column", "heads")]
    return nn.ModuleDict({"x": attention}), rules, {"config": {"num_attention_heads": 2}}


def _norms(heads: int = 2) -> tuple[nn.Module, Any, Any]:
    norms = nn.ModuleList(nn.LayerNorm(2) for _ in range(2))
    attention = nn.ModuleDict(
        {"q_proj": nn.Linear(4, 4), "q_norm": nn.ModuleDict({"norms": norms})}
    )
    rules = [tp.Rule("q_proj", "column", "heads")]
    config = {"num_attention_heads": heads, "num_key_value_heads": 2}
    return nn.ModuleDict({"0": attention}), rules, {"config": config}


def _exact() -> tuple[nn.Module, Any, Any]:
    return made("bloom", slow_but_exact=True, pretraining_tp=2), None, {}


def _attention() -> tuple[nn.Module, Any, Any]:
    attention = nn.MultiheadAttention(4, 2)
    rules = [tp.Rule("attn.out_proj", "column", gather=True)]
    return nn.ModuleDict({"0": nn.ModuleDict({"attn": attention})}), rules, {}


def _recurrent() -> tuple[nn.Module, Any, Any]:
    rules = [tp.Rule("x", "sum"), tp.Rule("x.weight_ih_l0", "column")]
    return nn.ModuleDict({"x": nn.LSTM(4, 4, bias=False)}), rules, {}


def _layer(make: Callable[[], nn.Module], cut: Any) -> Callable[[], tuple[nn.Module, Any, Any]]:
    return lambda: (nn.ModuleDict({"x": make()}), [tp.Rule("x", cut)], {})


LAYERS: dict[str, Callable[[], tuple[nn.Module, Any, Any]]] = {
    "more than linear": _layer(lambda: Scaled(4, 4), "row"),
    "an activation in a sum": _layer(lambda: Rectified(4, 4, bias=False), "row"),
    "features of features": _layer(lambda: Chances(4, 4), "column"),
    "other words": _layer(lambda: Offset(12, 4), "vocab"),
    "one weight more": _layer(Adapted, "row"),
    "one weight more, by columns": _layer(Adapted, "column"),
    "a forward of its own": _layer(_hooked, "row"),
    "a number beside a bias": _layer(Shifted, "column"),
    "a parameter of its own": _layer(_packed, "column"),
    "a matrix stored the other way": lambda: (
        nn.ModuleDict({"x": nn.Linear(4, 4)}),
        [tp.Rule("x", "row", stored="in_out")],
        {},
    ),
    "a matrix not stored that way": _layer(_transposed, "column"),
    "a sparse weight": _layer(_sparse, "column"),
    "a hook of its weight": _layer(lambda: _listened("register_hook"), "column"),
    "a hook after its weight": _layer(
        lambda: _listened("register_post_accumulate_grad_hook"), "column"
    ),
    "a wrapped layer": _layer(lambda: checkpoint_wrapper(nn.Linear(4, 4)), "column"),
    "a norm of its weight": _layer(_normed, "row"),
    "DistributedDataParallel": lambda: _wrapped(nn.parallel.DistributedDataParallel),
    "DataParallel": lambda: _wrapped(nn.DataParallel),
    "FullyShardedDataParallel": lambda: _wrapped(_flat),
    "TorchScript": lambda: _wrapped(torch.jit.script),
    "a layer in TorchScript": _layer(lambda: torch.jit.script(nn.Linear(4, 4)), "column"),
    "a norm": _layer(lambda: nn.LayerNorm(4), "column"),
    "a convolution": _layer(lambda: nn.Conv1d(4, 4, 1), "column"),
    "a product of two inputs": _layer(lambda: nn.Bilinear(4, 4, 4), "column"),
    "sums of rows": _layer(lambda: nn.EmbeddingBag(4, 4), "vocab"),
    "attention of torch": _attention,
    "a recurrent network": _recurrent,
    "a matrix of heads": lambda: (
        nn.ModuleDict({"x": Gamma(4, 4)}),
        [tp.Rule("x.gamma", "column", "heads")],
        {"config": {"num_attention_heads": 2}},
    ),
    "a vector": lambda: (nn.ModuleDict({"x": Gamma()}), [tp.Rule("x.gamma", "column")], {}),
    "max_norm": _words(max_norm=1.0),
    "scale_grad_by_freq": _words(scale_grad_by_freq=True),
    "sparse": _words(sparse=True),
    **{name: _between(name) for name in BETWEEN},
    "a norm of heads": _norm,
    "norms of each head": _norms,
    "norms of each key-value head": lambda: _norms(4),
    "a norm with numbers for each head": _unlike,
    "an activation that is learned": _activation,
    "a number beside layers": _temperature,
    "one layer, two rules": _shared,
    "slices of a layer's weight": _exact,
}
