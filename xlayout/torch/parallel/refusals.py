"""Refusals: layers that cannot be sharded, because their role would compute something else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch.nn.modules.conv import _ConvNd
from torch.nn.parallel import DataParallel, DistributedDataParallel

from xlayout.algebra.shapes import with_article
from xlayout.errors import ShardingError
from xlayout.torch.parallel.roles import Alone, Column, Role, Row, Vocab, WithRole

if TYPE_CHECKING:
    from xlayout.torch.parallel.assignment import Weight
    from xlayout.tp.rules import Rule

__all__ = [
    "is_flat",
    "left_whole",
    "refuse_beside",
    "refuse_between",
    "refuse_bias",
    "refuse_class",
    "refuse_computed",
    "refuse_embedding",
    "refuse_exact",
    "refuse_function",
    "refuse_kind",
    "refuse_layer",
    "refuse_stored",
    "refuse_table",
    "refuse_twice",
    "refuse_whole",
]

_LINEAR = ("Conv1D", "FalconLinear")  # of transformers; linear, with their own forward


def refuse_twice(model: nn.Module) -> None:
    """Refuse a model that is parallelized already, whose shapes are no longer those of the whole.

    Raises:
        ShardingError: for a layer that has a role; for a wrapper, and for TorchScript, which would
            go on with parameters that have been replaced.
    """
    for name, module in model.named_modules():
        if isinstance(module, WithRole):
            raise ShardingError(f"model: {name!r} is on several ranks already")
        if isinstance(module, DataParallel | DistributedDataParallel) or is_flat(module):
            raise ShardingError(
                f"model: {name!r} is {_kind(module)}, which keeps to the parameters that "
                "it found; parallelize the model first, and wrap it then"
            )
        if isinstance(module, torch.jit.ScriptModule) and [*module.parameters()]:
            raise ShardingError(f"model: {name!r} is TorchScript; give the module it was made of")


def is_flat(module: nn.Module) -> bool:
    """Whether a module is wrapped by FSDP 1, which keeps flat parameters."""
    return type(module).__name__ == "FullyShardedDataParallel"  # importing it is slow


def refuse_computed(model: nn.Module, rules: Sequence[Rule]) -> None:
    """Refuse a layer that a rule cuts, but whose weight is computed from others, which stay whole.

    Raises:
        ShardingError: for such a layer: weight norm, pruning, or another parametrization.
    """
    for name, module in model.named_modules():
        named = (rule for rule in rules if rule.cut != "sum" and rule.match(f"{name}.weight"))
        rule = next(named, None)
        if rule is None or rule.cut == "whole" or "weight" in module._parameters:
            continue
        if isinstance(getattr(module, "weight", None), torch.Tensor):
            raise ShardingError(
                f"model: {name!r} makes its weight of others, which no rule names; make it a plain "
                "one first, as torch.nn.utils.parametrize.remove_parametrizations and "
                "torch.nn.utils.prune.remove do it"
            )


def refuse_layer(name: str, module: nn.Module) -> None:
    """Refuse a layer with a `forward` on the instance, which hides that of its class.

    Raises:
        ShardingError: for such a layer, as accelerate's hooks leave it.
    """
    if "forward" in module.__dict__:
        raise ShardingError(
            f"model: {name!r} has a forward of its own, which its {type(module).__name__} does not "
            "see; take it away (`del layer.forward`, accelerate's remove_hook_from_module), and "
            "put it there again afterwards"
        )


def refuse_exact(name: str, module: nn.Module) -> None:
    """Refuse a module that slices the whole weights of its layers.

    Raises:
        ShardingError: for BLOOM's `slow_but_exact`, which sums as the ranks of its training did.
    """
    ranks = getattr(module, "pretraining_tp", 1)
    if getattr(module, "slow_but_exact", False) and ranks > 1:
        raise ShardingError(
            f"model: {name!r} has slow_but_exact=True and pretraining_tp={ranks}, by which it "
            "multiplies with slices of the whole weight of a layer that is cut; make the model "
            "with slow_but_exact=False in its config"
        )


def left_whole(name: str) -> str:
    """The rule that leaves the layers of a module whole, and those of its likes."""
    pattern = f"{re.sub(r'[0-9]+', '*', name)}.*" if name else "*"
    return f"Rule({pattern!r}, 'whole')"


def refuse_function(name: str, module: nn.Module) -> None:
    """Refuse a module that gives its weights, and those of its layers, to one function.

    Raises:
        ShardingError: for attention or a recurrent network of torch: no layer in it is called.
    """
    if isinstance(module, nn.MultiheadAttention | nn.RNNBase):
        raise ShardingError(
            f"model: {name!r} is {_kind(module)}, which gives its weights to one function and "
            f"calls no layer that could send anything. Leave it whole by {left_whole(name)}"
        )


def refuse_class(name: str, parameter: nn.Parameter) -> None:
    """Refuse a parameter whose values are packed or sharded already, or that has hooks.

    Raises:
        ShardingError: for another class than nn.Parameter; for a sparse one; for one with hooks,
            which its part would not have.
    """
    if type(parameter) is not nn.Parameter and not isinstance(parameter, FakeTensor):
        raise ShardingError(
            f"model: {name!r} is {_kind(parameter)}; only a plain nn.Parameter is cut. "
            "Parallelize before FSDP or quantization"
        )
    if parameter.layout is not torch.strided:
        raise ShardingError(
            f"model: {name!r} is of layout {parameter.layout}; only a strided one is cut, as "
            "to_dense() makes it"
        )
    if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
        raise ShardingError(
            f"model: {name!r} has hooks, which see the gradient of the whole. Parallelize first; "
            "then the part on a rank may have hooks of its own"
        )


def refuse_kind(name: str, module: nn.Module, ndim: int) -> None:
    """Refuse to shard a layer that does not multiply by a matrix.

    Raises:
        ShardingError: for a norm, a convolution, or another that does more than that.
    """
    if ndim < 2 or isinstance(module, _ConvNd | nn.Bilinear | nn.EmbeddingBag):
        raise ShardingError(
            f"model: {name!r} belongs to {_kind(module)}; only layers with a matrix are "
            "cut, and a norm of each head is 'whole' with partial_grads=True"
        )


def refuse_stored(name: str, module: nn.Module, stored: str) -> None:
    """Refuse a linear layer that a rule would cut along its other axis.

    Raises:
        ShardingError: for an nn.Linear stored as "in_out", or a Conv1D of transformers that is not.
    """
    transposed = any(base.__name__ == "Conv1D" for base in type(module).__mro__)
    own = "in_out" if transposed else "out_in"
    if stored != own and (transposed or isinstance(module, nn.Linear)):
        raise ShardingError(
            f"model: {name!r} belongs to {_kind(module)}; its rule has stored={stored!r}, and the "
            f"weight of such a layer is {own!r}"
        )


def refuse_bias(name: str, module: nn.Module) -> None:
    """Refuse a row-parallel layer whose bias cannot be added once, after the sum.

    Raises:
        ShardingError: for a layer with a bias that is not plainly linear.
    """
    kind: Any = type(module)
    if getattr(module, "bias", None) is None or kind.forward is nn.Linear.forward:
        return
    if any(base.__name__ in _LINEAR and vars(base).get("forward") is kind.forward
           for base in kind.__mro__):  # fmt: skip
        return
    raise ShardingError(
        f"model: {name!r} belongs to {_kind(module)}, whose bias is to be added once; of layers "
        "with a bias only linear ones, with the forward of nn.Linear, can be cut by rows"
    )


def refuse_between(weight: Weight) -> None:
    """Refuse a parameter between sharded layers, if no rule matches it.

    Raises:
        ShardingError: for a layer named like a norm of queries or keys, or like an activation.
    """
    layer, parameter = weight.owner.rpartition(".")[2], weight.parameter
    if parameter is None or not parameter.requires_grad:
        return
    if not re.fullmatch("(q|k|query|key)_?(layer_?)?norm|act(ivation)?(_fn|_func)?", layer):
        return
    if parameter.ndim > 1:
        around = ".".join([*weight.owner.split(".")[-2:-1], "*"])
        raise ShardingError(
            f"model: {weight.name!r} is whole on every rank, between layers that are cut, and has "
            f"numbers for each head. Leave the layers whole by Rule({around!r}, 'whole')"
        )
    if weight.leaf not in ("weight", "bias"):
        layer = f"{layer}.{weight.leaf}"
    raise ShardingError(
        f"model: {weight.name!r} is whole on every rank, between layers that are cut: each would "
        f"have a part of its gradient. Give Rule({layer!r}, 'whole', partial_grads=True)"
    )


def refuse_beside(weight: Weight) -> None:
    """Refuse a parameter of a module in which layers are cut, if no rule names it.

    Raises:
        ShardingError: for one that may be used on one rank's features: a temperature of attention.
    """
    parameter, name = weight.parameter, ".".join(weight.name.split(".")[-2:])
    if parameter is not None and parameter.requires_grad:
        raise ShardingError(
            f"model: {weight.name!r} is whole on every rank, beside layers that are cut, and no "
            f"rule names it. Give Rule({name!r}, 'whole', partial_grads=True) if it is used on "
            f"what a rank has of their results, else Rule({name!r}, 'whole')"
        )


def refuse_whole(weight: Weight, role: Role) -> None:
    """Refuse a whole parameter in a sharded layer: each rank would have a part of its gradient.

    Raises:
        ShardingError: for such a parameter, unless its rule has partial_grads.
    """
    rule = weight.placed.rule
    if not isinstance(role, Alone | Column | Row | Vocab) or (
        rule is not None and rule.partial_grads
    ):
        return
    if weight.leaf == "bias" and isinstance(role, Row):
        return
    parameter = weight.parameter
    if parameter is not None and parameter.requires_grad:
        raise ShardingError(
            f"model: {weight.name!r} is whole on every rank, in a layer that is cut: each would "
            f"have a part of its gradient. Give a rule that cuts it, or Rule({weight.name!r}, "
            "'whole', partial_grads=True)"
        )


def refuse_table(name: str, cut: str, axis: int) -> None:
    """Refuse an embedding that is cut like a layer that multiplies by its matrix.

    Raises:
        ShardingError: unless its rows are cut by "vocab", or its columns by "column".
    """
    if (cut, axis) not in (("vocab", 0), ("column", 1)):
        raise ShardingError(
            f"model: {name!r} belongs to an embedding, and {cut!r} cuts its axis {axis}; give a "
            "rule that cuts its rows, 'vocab', or its columns, 'column' with stored='in_out'"
        )


def refuse_embedding(name: str, module: nn.Embedding, runs: Sequence[tuple[range, ...]]) -> None:
    """Refuse an embedding whose rows cannot be sharded this way.

    Raises:
        ShardingError: for options that need all rows; for a rank that would have none.
    """
    for option in ("max_norm", "scale_grad_by_freq", "sparse"):
        if getattr(module, option):
            raise ShardingError(f"model: {name!r} has {option}, which needs the whole embedding")
    if not all(runs):
        n, parts = module.num_embeddings, len(runs)
        raise ShardingError(
            f"model: {name!r} has {n} rows for {parts} ranks; wanted at least one for each"
            + (", and a smaller grain" if n >= parts else "")
        )


def _kind(value: Any) -> str:
    return with_article(type(value).__name__)
