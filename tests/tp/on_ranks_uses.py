"""What is done with a module that several ranks share, and with the whole one."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, jvp, vmap
from torch.utils.checkpoint import checkpoint

from tests.tp.on_ranks import mesh_of
from xlayout import tp
from xlayout.errors import ShardingError
from xlayout.torch import clip_grad_norm_

__all__ = ["Attention", "Config"]


class Config:
    """The numbers that an attention module reads, and how it is to run."""

    def __init__(self, heads: int, kv_heads: int) -> None:
        self.num_attention_heads, self.num_key_value_heads = heads, kv_heads
        self.scale = 1.0


class Attention(nn.Module):
    """Attention that reads everything from its config."""

    def __init__(self, heads: int = 4, kv_heads: int = 1, *, bias: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = Config(heads, kv_heads)
        self.self_attn = Inner(self.config, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.self_attn(x)
        return y


class Inner(nn.Module):
    """Its layers, named as in Llama."""

    def __init__(self, config: Config, *, bias: bool, size: int = 2) -> None:
        super().__init__()
        self.config = config
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        width = heads * size
        self.q_proj = nn.Linear(width, heads * size, bias=bias)
        self.k_proj = nn.Linear(width, kv_heads * size, bias=bias)
        self.v_proj = nn.Linear(width, kv_heads * size, bias=bias)
        self.o_proj = nn.Linear(heads * size, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads, kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
        q = self.q_proj(x).unflatten(-1, (heads, -1)).transpose(-2, -3)
        k, v = (
            layer(x).unflatten(-1, (kv_heads, -1)).transpose(-2, -3)
            for layer in (self.k_proj, self.v_proj)
        )
        k, v = (y.repeat_interleave(heads // kv_heads, -3) for y in (k, v))
        scores = (q @ k.mT * self.config.scale).softmax(-1)
        y: torch.Tensor = self.o_proj((scores @ v).transpose(-2, -3).flatten(-2))
        return y


def both(ranks: Any, **options: Any) -> tuple[Attention, Attention, tp.TensorPlan]:
    """The whole module, the same module on several ranks, and the plan."""
    whole = Attention(**options)
    mesh = mesh_of(ranks)
    parts = ranks if isinstance(ranks, int) else ranks[1]
    plan = tp.plan(whole, parts, rules="llama", config=whole.config)
    return whole, tp.parallelize(copy.deepcopy(whole), mesh, plan=plan), plan


def x(*shape: int) -> torch.Tensor:
    """An input."""
    n = torch.Size(shape).numel()
    return torch.linspace(-1, 1, n).sin().reshape(shape)


def told(_rank: int, ranks: int) -> None:
    """A setting made in the model's config reaches its attention."""
    whole, model, _ = both(ranks)
    model = pickle.loads(pickle.dumps(model))
    for m in (whole, model):
        m.config.scale = 3.0
    torch.testing.assert_close(model(x(3, 8)), whole(x(3, 8)))
    assert model.config.num_attention_heads == 4
    assert model.self_attn.config.num_attention_heads == 4 // ranks
    model.self_attn.config.scale = 1.0
    assert model.config.scale == 1.0


def transformed(_rank: int, ranks: int, how: str) -> None:
    """The transforms of `torch.func` give the same for the model as for the whole."""
    whole, model, _ = both(ranks)

    def found(m: nn.Module) -> Any:
        weights = dict(m.named_parameters())

        def loss(weights: Any, x: torch.Tensor) -> Any:
            return functional_call(m, weights, (x,)).square().sum()

        ways: dict[str, Any] = {
            "grad": lambda: grad(loss)(weights, x(3, 8))["self_attn.k_proj.weight"],
            "vmap": lambda: vmap(m, 2)(x(3, 8, 2)),
            "each": lambda: vmap(grad(loss), (None, 0))(weights, x(2, 3, 8)),
            "jvp": lambda: jvp(m, (x(3, 8),), (x(3, 8),)),
            "of a vmap": lambda: grad(lambda x: vmap(m, 2)(x).square().sum())(x(3, 8, 2)),
            "of a jvp": lambda: grad(lambda y: jvp(m, (y,), (x(3, 8),))[1].sum())(x(3, 8)),
            "second": lambda: jacrev(grad(loss, argnums=1), argnums=1)(weights, x(2, 8)),
        }
        made = ways[how]()
        return made["self_attn.k_proj.weight"] if how == "each" else made

    torch.testing.assert_close(found(model), found(whole), rtol=1e-4, atol=1e-5)


def checkpointed(_rank: int, ranks: int, reentrant: bool) -> None:
    """Gradients of a recomputed pass are those of the whole."""
    whole, model, _ = both(ranks)
    seen = []
    for m in (whole, model):
        given = x(3, 8).requires_grad_()
        made: Any = checkpoint(m, given, use_reentrant=reentrant)
        made.square().sum().backward()
        seen.append((given.grad, m.self_attn.k_proj.weight.grad))
    torch.testing.assert_close(seen[1], seen[0])


def sorted_plan(_rank: int, ranks: int) -> None:
    """Gradients and their norm are right with a plan that lists biases before their matrices."""
    whole = Attention()
    weights = dict(sorted(whole.state_dict().items()))
    plan = tp.plan(weights, ranks, rules="llama", config=whole.config)
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), plan=plan)
    seen = []
    for m in (whole, model):
        given = x(3, 8).requires_grad_()
        m(given).square().sum().backward()
        seen.append(given.grad)
    torch.testing.assert_close(seen[1], seen[0])
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
    torch.testing.assert_close(clip_grad_norm_(model, 1.0), expected)


def cast(_rank: int, ranks: int) -> list[str]:
    """The dtypes of the layers' results under autocast."""
    whole, model, _ = both(ranks)
    seen: list[list[str]] = [[], []]
    for m, into in zip((whole, model), seen, strict=True):
        for layer in m.self_attn.children():
            layer.register_forward_hook(lambda _m, _x, y, into=into: into.append(str(y.dtype)))
        with torch.autocast("cpu", torch.bfloat16):
            m(x(3, 8))
    assert seen[0] == seen[1]
    return seen[1]


def named(_rank: int, ranks: int) -> None:
    """A layer accepts its input by name."""
    whole, model, _ = both(ranks)
    for leaf, n in (("o_proj", 8 // ranks), ("k_proj", 8)):
        layers = whole.self_attn.get_submodule(leaf), model.self_attn.get_submodule(leaf)
        ones = torch.ones(2, 8)
        torch.testing.assert_close(layers[1](input=ones[:, :n]), layers[0](input=ones))
    table = nn.ModuleDict({"x": nn.Embedding(3, 2)})
    cut = tp.parallelize(copy.deepcopy(table), mesh_of(ranks), rules=[tp.Rule("x", "vocab")])
    ids = torch.arange(3)
    torch.testing.assert_close(cut["x"](input=ids), table["x"](ids))
    latent = nn.ModuleDict({"x": nn.Linear(4, 6)})
    rules, config = [tp.Rule("x", "whole", tail="rope")], {"rope": 2}
    cut = tp.parallelize(copy.deepcopy(latent), mesh_of(ranks), rules=rules, config=config)
    torch.testing.assert_close(cut["x"](input=x(3, 4)), latent["x"](x(3, 4)))


def gathered(_rank: int, ranks: int) -> None:
    """Attention whose results are put together has all heads on every rank."""
    whole = Attention(kv_heads=4)
    rules = [
        tp.Rule("self_attn.q_proj", "column", "heads", gather=True),
        tp.Rule("self_attn.*_proj", "whole"),
    ]
    model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), rules=rules, config=whole.config)
    torch.testing.assert_close(model(x(3, 8)), whole(x(3, 8)))


def read(_rank: int, ranks: int) -> None:
    """Outside of its layer, a parameter that other ranks hold too is a plain one."""
    _, model, _ = both(ranks)
    layer = model.self_attn.k_proj
    assert layer.weight is layer._parameters["weight"]
    model(x(3, 8)).square().sum().backward()
    assert layer.weight.grad is not None
    torch.optim.SGD([layer.weight], lr=0.1).step()
    layer.weight = view = layer._parameters.pop("weight").detach()  # as FSDP does it
    assert layer.weight is view
    del layer.weight
    assert not hasattr(layer, "weight")


class Spelled(nn.Module):
    """Attention whose number of heads has another name."""

    def __init__(self, name: str, heads: int, **dropout: float | nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.name = name
        for key, value in {name: heads, **dropout}.items():
            setattr(self, key, value)
        for leaf in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, leaf, nn.Linear(12, 12, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = getattr(self, self.name)
        q, k, v = (
            self.get_submodule(leaf)(x).unflatten(-1, (heads, -1)).transpose(-2, -3)
            for leaf in ("q_proj", "k_proj", "v_proj")
        )
        y: torch.Tensor = self.o_proj(((q @ k.mT).softmax(-1) @ v).transpose(-2, -3).flatten(-2))
        return y


def spelled(_rank: int, ranks: int, name: str, heads: int, dropout: Any = None) -> str:
    """The error for attention that counts its heads under this name; empty if it runs correctly."""
    whole = nn.ModuleDict({"self_attn": Spelled(name, heads, **(dropout or {}))})
    config = {"num_attention_heads": 6}
    try:
        model = tp.parallelize(copy.deepcopy(whole), mesh_of(ranks), rules="llama", config=config)
    except ShardingError as error:
        return str(error)
    found = model.eval()["self_attn"](x(3, 12))
    torch.testing.assert_close(found, whole["self_attn"](x(3, 12)))
    try:
        model.train()["self_attn"](x(3, 12))
    except ShardingError as error:
        return str(error)
    return ""


def cut_once_more(rank: int, kind: str) -> None:
    """On the mesh's other axis, FSDP or DDP trains the model."""
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    whole, model, plan = both((2, 2))
    mesh = mesh_of((2, 2))["dp"]
    wrapped: Any = model
    if kind == "fsdp":
        fully_shard(model, mesh=mesh)
    else:
        wrapped = DistributedDataParallel(model, process_group=mesh.get_group())
    batch = x(2, 3, 8)
    wrapped(batch[rank // 2 : rank // 2 + 1]).square().mean().backward()
    whole(batch).square().mean().backward()
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.01)
    torch.testing.assert_close(clip_grad_norm_(wrapped, 0.01), expected)
    for name, weight in model.named_parameters():
        part = plan[name].sharding.layout(rank % 2, plan[name].shape)
        gradient: Any = weight.grad
        gradient = gradient.full_tensor() if kind == "fsdp" else gradient
        torch.testing.assert_close(gradient, part(whole.get_parameter(name).grad))


def made_flat(rank: int) -> str:
    """On the other axis, FSDP1 holds the weights; returns the error of clipping its gradients."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    whole, model, plan = both((2, 2))
    group, batch = mesh_of((2, 2))["dp"].get_group(), x(2, 3, 8)
    flat: Any = FullyShardedDataParallel(
        model, process_group=group, use_orig_params=True, device_id=torch.device("cpu")
    )
    flat(batch[rank // 2 : rank // 2 + 1]).square().mean().backward()
    whole(batch).square().mean().backward()
    with FullyShardedDataParallel.summon_full_params(flat, with_grads=True):
        for name, weight in flat.module.named_parameters():
            part = plan[name].sharding.layout(rank % 2, plan[name].shape)
            wanted: Any = whole.get_parameter(name).grad
            torch.testing.assert_close(weight.grad, part(wanted))
    try:
        clip_grad_norm_(torch.nn.Sequential(flat), 1.0)
    except ShardingError as error:
        return str(error)
    raise AssertionError("not refused")


def clipped_exactly(_rank: int, ranks: int) -> None:
    """Gradients in float64 have a norm in float64."""
    whole, model, _ = both(ranks)
    for m in (whole, model):
        m.double()(x(3, 8).double()).square().sum().backward()
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.1)
    torch.testing.assert_close(clip_grad_norm_(model, 0.1), expected)
    found, wanted = (m.self_attn.o_proj.bias.grad for m in (model, whole))
    torch.testing.assert_close(found, wanted)
