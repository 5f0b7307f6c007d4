"""What the ranks of a pool are asked to do with a model."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tests.tp.models import batch, made
from tests.tp.on_ranks_refused import LAYERS
from xlayout import tp
from xlayout.torch import clip_grad_norm_
from xlayout.torch.parallel.roles import WithRole

__all__ = [
    "Block",
    "clipped",
    "compared",
    "compiled",
    "forgotten",
    "loaded",
    "narrow",
    "padded",
    "refused",
    "trained",
]


def mesh_of(ranks: int | tuple[int, ...] | list[int]) -> DeviceMesh:
    """A mesh of this many ranks, or of these; if it has two axes, the second shares the model."""
    if isinstance(ranks, list):
        return DeviceMesh("cpu", ranks)
    if isinstance(ranks, int):
        return init_device_mesh("cpu", (ranks,))
    return init_device_mesh("cpu", ranks, mesh_dim_names=("dp", "tp"))


class Block(nn.Module):
    """A minimal gated MLP with biases."""

    def __init__(self, width: int = 6, features: int = 10) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(width, features),
                "up_proj": nn.Linear(width, features),
                "down_proj": nn.Linear(features, width),
            }
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        m = self.mlp
        y: torch.Tensor = m["down_proj"](torch.tanh(m["gate_proj"](x)) * m["up_proj"](x))
        return y


def compared(
    rank: int,
    ranks: int | tuple[int, int] | list[int],
    name: str,
    options: dict[str, Any],
    config: Any = None,
) -> dict[str, float]:
    """How far logits and gradients are off those of the whole model."""
    mesh = mesh_of(ranks)
    whole, ids = made(name, **(config or {})), batch()
    expected = whole(ids).logits
    expected.square().mean().backward()
    model = tp.parallelize(made(name, **(config or {})), mesh, **options)
    model = copy.deepcopy(model)  # copies carry no hooks of parameters
    logits = model(ids).logits
    logits.square().mean().backward()
    with torch.inference_mode():
        assert torch.equal(model(ids).logits, logits)
    gradients = {name: weight.grad for name, weight in whole.named_parameters()}
    largest = max(float(g.abs().max()) for g in gradients.values())
    far = {"logits": _far(logits, expected, 0)}
    plan = tp.plan(whole, _parts(ranks), **options)
    place = ranks.index(rank) if isinstance(ranks, list) else rank % plan.parts
    for name, weight in model.named_parameters():
        placed = plan[name]
        part = placed.sharding.layout(place, placed.shape)(gradients[name])
        far[name] = _far(weight.grad, part, 1e-3 * largest)
    return far


def _parts(ranks: int | tuple[int, int] | list[int]) -> int:
    if isinstance(ranks, list):
        return len(ranks)
    return ranks if isinstance(ranks, int) else ranks[1]


def _far(x: torch.Tensor, y: torch.Tensor, least: float) -> float:
    """The largest difference, relative to the values, or to `least` as some gradients are zero."""
    assert x.shape == y.shape
    x, y = x.detach(), y.detach()
    return float((x - y).abs().max() / max(float(y.abs().max()), least)) if x.numel() else 0.0


def trained(
    _rank: int, ranks: int, name: str, options: dict[str, Any], config: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The weights of a rank, and those of the whole model, after the same few steps."""

    def steps(model: Any) -> dict[str, Any]:
        # Far above rounding: else Adam takes a whole step along a gradient that is nothing more.
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-4)
        for step in range(3):
            optimizer.zero_grad()
            model((batch() + step) % 90).logits.square().mean().backward()
            optimizer.step()
        return {name: x.detach().clone() for name, x in model.state_dict().items()}

    whole = made(name, **config)
    return steps(tp.parallelize(made(name, **config), mesh_of(ranks), **options)), steps(whole)


def loaded(rank: int, ranks: int, name: str) -> bool:
    """Whether a model made without memory and given its shard equals one that was cut."""
    whole = made(name)
    plan = tp.plan(whole, ranks)
    with torch.device("meta"):
        model = tp.parallelize(made(name), mesh_of(ranks), plan=plan)
    assert all(x.is_meta for x in model.parameters())
    model.load_state_dict(tp.shard(whole, plan, rank), assign=True)
    for key, buffer in whole.named_buffers():  # some are in no state dict
        owner, _, leaf = key.rpartition(".")
        model.get_submodule(owner)._buffers[leaf] = buffer
    cut = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), plan=plan)
    for m in (model, cut):
        m(batch()).logits.square().mean().backward()
    gradients = zip(model.parameters(), cut.parameters(), strict=True)
    return all(torch.equal(a.grad, b.grad) for a, b in gradients)


def clipped(_rank: int, ranks: int, name: str, norm_type: float) -> None:
    """Gradients clipped on several ranks are those clipped on one."""
    whole = made(name)
    model = tp.parallelize(made(name), mesh_of(ranks))
    for m in (whole, model):
        m(batch()).logits.square().mean().backward()
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.1, norm_type)
    found = clip_grad_norm_(model, 0.1, norm_type)
    torch.testing.assert_close(found, expected)
    shared = [(n, p) for n, p in model.named_parameters() if n.endswith("layernorm.weight")]
    for key, weight in shared:
        torch.testing.assert_close(weight.grad, whole.get_parameter(key).grad)
    assert shared


def forgotten(rank: int, ranks: int) -> None:
    """Whole weights are released once cut; layers keep their names, classes, hooks and numbers."""
    model = Block()
    linear = model.mlp["up_proj"]
    seen: list[tuple[int, ...]] = []
    linear.register_forward_hook(lambda _m, _x, y: seen.append(tuple(y.shape)))
    keys = list(model.state_dict())
    old = [weakref.ref(p.untyped_storage()) for p in model.parameters() if p.ndim == 2]
    assert tp.parallelize(model, mesh_of(ranks), rules="llama") is model
    assert [ref() for ref in old] == [None] * 3
    assert list(model.state_dict()) == keys
    own = (3, 3, 2, 2)[rank]
    assert isinstance(linear, nn.Linear)
    assert isinstance(linear, WithRole)
    assert (linear.in_features, linear.out_features) == (6, own)
    assert model.mlp["down_proj"].in_features == own
    assert "out_features=" in repr(linear)
    whole = Block()
    x = torch.randn(2, 6)
    torch.distributed.broadcast(x, 0)
    torch.testing.assert_close(model(x), whole(x))
    torch.testing.assert_close(copy.deepcopy(model)(x), whole(x))
    assert seen == [(2, own)] * 2


def compiled(_rank: int, ranks: int, backend: str, rules: Any) -> None:
    """A block compiled as one graph has the results and gradients of the whole."""
    torch._dynamo.reset()
    whole, model = Block(), tp.parallelize(Block(), mesh_of(ranks), rules=rules)
    x = torch.linspace(-1, 1, 24).reshape(4, 6).requires_grad_()
    y = x.detach().clone().requires_grad_()
    expected = whole(x)
    expected.square().sum().backward()
    made = torch.compile(model, fullgraph=True, backend=backend)(y)
    made.square().sum().backward()
    torch.testing.assert_close(made, expected)
    torch.testing.assert_close(y.grad, x.grad)


def narrow(_rank: int, ranks: int, rules: Any, features: int, grain: int) -> None:
    """With few features, or in grains, ranks have unlike ones; all results are as on one."""
    whole = Block(features=features)
    model = tp.parallelize(Block(features=features), mesh_of(ranks), rules=rules, grain=grain)
    found = []
    for m in (whole, model):
        x = torch.linspace(-1, 1, 24).reshape(4, 6).requires_grad_()
        y = m(x)
        y.square().sum().backward()
        found.append((y, x.grad))
    torch.testing.assert_close(found[1], found[0])


def padded(_rank: int, ranks: int) -> int | None:
    """The row of a rank's embedding, which has two names, that is no word."""
    model = nn.ModuleDict(dict.fromkeys("xy", nn.Embedding(8, 2, padding_idx=5)))
    layer: Any = tp.parallelize(model, mesh_of(ranks), rules=[tp.Rule("*", "vocab")])["x"]
    return layer.padding_idx  # type: ignore[no-any-return]


def refused(_rank: int, ranks: int, case: str) -> str:
    """The error for a model that cannot be run this way, and that must be left as it was."""
    model, rules, options = CASES[case]()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    kinds = [type(m) for m in model.modules()]
    try:
        tp.parallelize(model, mesh_of(ranks), rules=rules, **options)
    except (TypeError, ValueError) as error:
        after = model.state_dict()
        assert all(torch.equal(after[n].to_dense(), x.to_dense()) for n, x in before.items())
        assert [type(m) for m in model.modules()] == kinds
        return f"{type(error).__name__}: {error}"
    raise AssertionError("not refused")


class Bilinear(nn.Module):
    """A layer with a bias that is not linear in its input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.bias = nn.Parameter(torch.ones(4))


class Bank(nn.Module):
    """Experts in one module, with names of their own for the weights."""

    def __init__(self, *, biased: bool = False) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.ones(2, 4, 4))
        if biased:
            self.down_bias = nn.Parameter(torch.ones(2, 4))


def _tied() -> nn.ModuleDict:
    model = nn.ModuleDict({"embed": nn.Embedding(8, 4), "head": nn.Linear(4, 8, bias=False)})
    model["head"].weight = model["embed"].weight
    return model


def _twice() -> tuple[nn.Module, Any, Any]:
    widths = {"q_proj": (8, 8), "k_proj": (8, 2), "v_proj": (8, 2), "o_proj": (8, 8)}
    layers = {name: nn.Linear(*width) for name, width in widths.items()}
    model = nn.ModuleDict({"self_attn": nn.ModuleDict(layers)})
    config = {"num_attention_heads": 4, "num_key_value_heads": 1}
    tp.parallelize(model, mesh_of(2), rules="llama", config=config)
    return model, "llama", {"config": config}


def _buffer() -> nn.Module:
    model = nn.ModuleDict({"x": nn.Linear(4, 4)})
    model.register_buffer("table", torch.ones(4, 4))
    return model


CASES: dict[str, Any] = {
    **LAYERS,
    "twice": _twice,
    "other ties": lambda: (_tied(), [tp.Rule("embed", "vocab")], {}),
    "bias that is not added": lambda: (
        nn.ModuleDict({"x": Bilinear()}), [tp.Rule("x", "row")], {}),
    "no role": lambda: (nn.ModuleDict({"x": Bank()}), [tp.Rule("x.up", "column")], {}),
    "bias of a sum": lambda: (
        nn.ModuleDict({"x": Bank(biased=True)}),
        [tp.Rule("x", "sum"), tp.Rule("x.up", "column"), tp.Rule("x.down_bias", "row")], {}),
    "few rows": lambda: (
        nn.ModuleDict({"x": nn.Embedding(1, 4)}), [tp.Rule("x", "vocab")], {}),
    "few rows in grains": lambda: (
        nn.ModuleDict({"x": nn.Embedding(8, 4)}), [tp.Rule("x", "vocab")], {"grain": 8}),
    "norm": lambda: (
        nn.ModuleDict({"x": nn.Embedding(8, 4, max_norm=1.0)}), [tp.Rule("x", "vocab")], {}),
    "rows of a layer": lambda: (
        nn.ModuleDict({"x": nn.Embedding(8, 4)}), [tp.Rule("x", "column", gather=True)], {}),
    "sums of a layer": lambda: (
        nn.ModuleDict({"x": nn.Embedding(8, 4)}), [tp.Rule("x", "row", stored="in_out")], {}),
    "a buffer": lambda: (_buffer(), [tp.Rule("table", "column")], {}),
    "both": lambda: (
        nn.ModuleDict({"x": nn.Linear(4, 4)}), [tp.Rule("x", "row")],
        {"plan": tp.plan({"x.weight": (4, 4), "x.bias": (4,)}, 2, rules=[tp.Rule("x", "row")])}),
    "a plan for others": lambda: (
        nn.ModuleDict({"x": nn.Linear(4, 4)}), None,
        {"plan": tp.plan({"x.weight": (4, 4), "x.bias": (4,)}, 3, rules=[tp.Rule("x", "row")])}),
    "a plan of others": lambda: (
        nn.ModuleDict({"x": nn.Linear(4, 4)}), None,
        {"plan": tp.plan({"x.weight": (4, 6), "x.bias": (4,)}, 2, rules=[tp.Rule("x", "row")])}),
}  # fmt: skip
