"""Attention: the modules whose layers are cut between heads, and what counts heads in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from xlayout.errors import ShardingError
from xlayout.torch.parallel.assignment import Weight
from xlayout.torch.parallel.heads import (
    forbid_dropout,
    refuse_other_heads,
    set_local_heads,
    slice_alibi,
)
from xlayout.torch.parallel.refusals import left_whole

if TYPE_CHECKING:
    from xlayout.tp.value import TensorPlan

__all__ = ["Attention", "attentions_of", "count_heads"]


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention module.

    Attributes:
        module: the smallest that holds both the layers that make its heads and those that take
            them.
        inner: it and those of its submodules that work on a rank's own heads.
    """

    module: nn.Module
    inner: tuple[nn.Module, ...]


def attentions_of(model: nn.Module, weights: Sequence[Weight], plan: TensorPlan) -> list[Attention]:
    """The attention modules of a model.

    Raises:
        ShardingError: for one whose heads cannot be cut this way.
    """
    rows = [
        w.name
        for w in weights
        if w.axis is not None and w.placed.rule and w.placed.rule.cut == "row"
    ]
    names = dict.fromkeys(_holder(weight, rows) for weight in weights if _makes_heads(weight))
    whole = plan.numbers.heads or 0, plan.numbers.kv_heads or 0
    found: dict[int, Attention] = {}
    for name in names:
        module = model.get_submodule(name)
        own = [weight for weight in weights if _is_in(weight.name, name)]
        inner = [(path, child) for path, child in module.named_modules(prefix=name)
                 if _works_on_own_heads(path, own)]  # fmt: skip
        for path, child in inner:
            refuse_other_heads(path, child, whole[0])
        _refuse_modules_of_heads(name, module, whole, own)
        for weight in own:
            _refuse_columns(weight, whole[0])
        found[id(module)] = Attention(module, tuple(child for _, child in inner))
    return list(found.values())


def count_heads(attention: Attention, plan: TensorPlan, rank: int) -> None:
    """Set the head counts of an attention module to those of a rank."""
    own = [plan.heads_on(r) for r in range(plan.parts)]
    whole = plan.numbers.heads or 0, plan.numbers.kv_heads or 0
    for module in attention.inner:
        set_local_heads(module, whole, own[rank])
        if len(set(own)) > 1:
            forbid_dropout(module)
    slice_alibi(attention.module, whole[0], sum(n for n, _ in own[:rank]), own[rank][0])


def _makes_heads(weight: Weight) -> bool:
    """Whether a layer makes heads, of which every rank keeps its own."""
    rule = weight.placed.rule
    return rule is not None and rule.cut == "column" and not rule.gather and rule.between_heads


def _holder(weight: Weight, rows: Sequence[str]) -> str:
    """The smallest module around a layer that also holds one that is cut by rows.

    If there is none, the layer's parent.
    """
    layer = weight.owner if weight.leaf in ("weight", "bias") else weight.name
    around = path = layer.rpartition(".")[0]
    while not any(_is_in(row, path) for row in rows):
        if not path:
            return around
        path = path.rpartition(".")[0]
    return path


def _is_in(name: str, module: str) -> bool:
    return not module or name.startswith(f"{module}.")


def _works_on_own_heads(path: str, weights: Sequence[Weight]) -> bool:
    """Whether a module works on a rank's own heads: not one that has only whole matrices."""
    matrices = [w for w in weights if _is_in(w.name, path) and len(w.placed.shape) > 1]
    return not matrices or any(weight.axis is not None for weight in matrices)


def _refuse_columns(weight: Weight, heads: int) -> None:
    """Refuse an embedding in attention with a column for each head, if no rule names it.

    Raises:
        ShardingError: for one such as T5's biases of relative positions, of which a rank must add
            only the columns of its own heads.
    """
    columns = weight.placed.shape[1:] == (heads,)
    if columns and weight.placed.rule is None and isinstance(weight.module, nn.Embedding):
        layer = weight.owner.rpartition(".")[2]
        raise ShardingError(
            f"model: {weight.name!r} has {heads} columns, one for each head, and no rule names it. "
            f"Give Rule({layer!r}, 'column', 'heads', stored='in_out'), or Rule({layer!r}, "
            "'whole') if its columns are no heads"
        )


def _refuse_modules_of_heads(
    name: str, module: nn.Module, whole: tuple[int, int], weights: Sequence[Weight]
) -> None:
    """Refuse an attention module with a list of modules, one for each head.

    Raises:
        ShardingError: for such a module: every rank would use the first of the list.
    """
    cut = [weight.name for weight in weights if weight.axis is not None]
    for path, child in module.named_modules():
        if not isinstance(child, nn.ModuleList) or len(child) < 2 or len(child) not in whole:
            continue
        if not any(_is_in(weight, f"{name}.{path}".strip(".")) for weight in cut):
            raise ShardingError(
                f"model: {name!r} has {len(child)} modules {path!r}, one for each head, of which "
                f"every rank would use the first. Leave it whole by {left_whole(name)}"
            )
