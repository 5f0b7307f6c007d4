"""Assignment: the role of each module of a model, by the rules of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from xlayout.algebra.shapes import with_article
from xlayout.errors import ShardingError
from xlayout.shard.owners import common, regions
from xlayout.torch.parallel.refusals import (
    refuse_beside,
    refuse_between,
    refuse_bias,
    refuse_class,
    refuse_computed,
    refuse_embedding,
    refuse_exact,
    refuse_function,
    refuse_kind,
    refuse_layer,
    refuse_stored,
    refuse_table,
    refuse_whole,
)
from xlayout.torch.parallel.roles import (
    Alone,
    Column,
    Counted,
    Experts,
    Role,
    Row,
    Tail,
    Vocab,
)
from xlayout.torch.parallel.tp_group import Copies, Features, TPGroup
from xlayout.torch.parallel.trial import refuse_forward

if TYPE_CHECKING:
    from xlayout.tp.value import Placed, TensorPlan

__all__ = ["Assignment", "Weight", "assignments", "weights_of"]


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter in its module.

    Attributes:
        name: its name in the model.
        owner: the name of its module.
        module: that module.
        leaf: its name in the module.
        placed: how it is sharded.
    """

    name: str
    owner: str
    module: nn.Module
    leaf: str
    placed: Placed

    @property
    def parameter(self) -> nn.Parameter | None:
        """The parameter that the module has now."""
        return self.module._parameters.get(self.leaf)

    @property
    def axis(self) -> int | None:
        """The axis that is cut."""
        return self.placed.axis


@dataclass(slots=True)
class Assignment:
    """The role of a module, and those of its parameters that need more than that.

    Attributes:
        module: the module.
        role: what it communicates.
        copies: its parameters whose gradients have to be summed over ranks.
        counted: its sharded parameters; see `Counted`.
    """

    module: nn.Module
    role: Role
    copies: dict[str, Copies] = field(default_factory=dict)
    counted: dict[str, Counted] = field(default_factory=dict)


def weights_of(model: nn.Module, plan: TensorPlan) -> list[Weight]:
    """The parameters of a model that a plan covers.

    Raises:
        ShardingError: for a buffer that is to be cut, or the weight of a wrapped layer; for one
            parameter with two shardings.
    """
    found: list[Weight] = []
    first: dict[int, Weight] = {}
    for name, placed in plan.items():
        owner, _, leaf = name.rpartition(".")
        weight = Weight(name, owner, model.get_submodule(owner), leaf, placed)
        if weight.parameter is None:
            if placed.axis is not None:
                kind = with_article(type(weight.module).__name__)
                what = "a buffer" if leaf in weight.module._buffers else f"inside {kind}"
                raise ShardingError(f"model: {name!r} is {what}, and only parameters are cut")
            continue
        if placed.axis is not None:
            refuse_class(name, weight.parameter)
        other = first.setdefault(id(weight.parameter), weight)
        if other.placed.sharding != placed.sharding:
            raise ShardingError(
                f"model: {other.name!r} and {name!r} are one parameter, cut as "
                f"{other.placed.sharding} and as {placed.sharding}; give both one rule"
            )
        if other.module is weight.module and _communication(other) != _communication(weight):
            raise ShardingError(
                f"model: {other.name!r} and {name!r} are one layer; give both the same rule"
            )
        found.append(weight)
    return found


def _communication(weight: Weight) -> Any:
    """What a rule says of a whole layer: the same for all parameters of it."""
    rule = weight.placed.rule
    return rule and (rule.cut, rule.features, rule.gather, rule.scatter, rule.partial_grads)


def assignments(
    model: nn.Module, plan: TensorPlan, weights: Sequence[Weight], group: TPGroup
) -> list[Assignment]:
    """All modules that have to communicate.

    Raises:
        ShardingError: for a module that cannot run in parts.
    """
    refuse_computed(model, plan.rules)
    cut = [weight for weight in weights if weight.axis is not None]
    for weight in cut:
        for owner in (weight.owner, _parent(weight.owner)):
            refuse_function(owner, model.get_submodule(owner))
    found = _assigned(model, plan, weights, group)
    for name in dict.fromkeys(_parent(weight.owner) for weight in cut):
        refuse_exact(name, model.get_submodule(name))
    _refuse_uncut(weights, found)
    return list(found.values())


def _assigned(
    model: nn.Module, plan: TensorPlan, weights: Sequence[Weight], group: TPGroup
) -> dict[int, Assignment]:
    """The assignments, by the `id` of their module."""
    found: dict[int, Assignment] = {}
    summed = _summed(model, plan)
    cut = {id(weight.module) for weight in weights if weight.axis is not None}
    # The sharded matrix of a layer determines its role, whatever the plan lists before it.
    for weight in sorted(weights, key=lambda w: w.axis is None or w.leaf == "bias"):
        module, shared = weight.module, _has_part_of_gradient(weight.placed)
        if id(module) in summed and id(module) in cut and weight.axis is None:
            raise ShardingError(
                f"model: {weight.name!r} is whole on every rank, in a module whose results are "
                f"summed: it would count {plan.parts} times"
            )
        if id(module) not in found:
            role = _role(weight, plan, group, module_is_summed=id(module) in summed)
            if role is None and shared:
                role = Alone(group)
            if role is None:
                continue
            refuse_layer(weight.owner, module)
            found[id(module)] = Assignment(module, role)
        if shared:
            found[id(module)].copies[weight.leaf] = _copies(weight.placed, group.rank)
        if weight.axis is not None:
            found[id(module)].counted[weight.leaf] = _counted(
                weight.placed, weight.axis, group.rank
            )
    return found


def _refuse_uncut(weights: Sequence[Weight], found: dict[int, Assignment]) -> None:
    """Refuse parameters that are whole on every rank, but used on what only one rank has.

    They are in a layer that is cut; or no rule names them, and they are beside a layer that leaves
    its outputs sharded.
    """
    cut = {id(weight.module) for weight in weights if weight.axis is not None}
    sharded = [weight for weight in weights if _leaves_outputs_sharded(weight)]
    parents = {_parent(weight.owner) for weight in sharded}
    parents_of_matrices = {_parent(weight.owner) for weight in sharded if weight.leaf == "weight"}
    for weight in weights:
        if weight.axis is None and id(weight.module) in cut:
            refuse_whole(weight, found[id(weight.module)].role)
        if weight.placed.rule is None and _parent(weight.owner) in parents:
            refuse_between(weight)
        if weight.placed.rule is None and weight.owner in parents_of_matrices:
            refuse_beside(weight)


def _parent(owner: str) -> str:
    """The name of a module's parent."""
    return owner.rpartition(".")[0]


def _leaves_outputs_sharded(weight: Weight) -> bool:
    """Whether a layer leaves its outputs sharded, for the next layer."""
    rule = weight.placed.rule
    return weight.axis is not None and rule is not None and rule.cut == "column" and not rule.gather


def _summed(model: nn.Module, plan: TensorPlan) -> set[int]:
    """The `id`s of the modules whose results a rule has summed."""
    rules = [rule for rule in plan.rules if rule.cut == "sum"]
    return {
        id(module)
        for name, module in model.named_modules(remove_duplicate=False)
        if any(rule.match(name) is not None for rule in rules)
    }


def _has_part_of_gradient(placed: Placed) -> bool:
    """Whether every rank computes only a part of the gradient of what it holds."""
    if placed.axis is not None:
        return placed.overlaps
    return placed.rule is not None and placed.rule.partial_grads


def _copies(placed: Placed, rank: int) -> Copies:
    """The part of a parameter on a rank, of which other ranks hold copies."""
    if placed.axis is None:
        return Copies()
    own = placed.sharding.layout(rank, placed.shape)
    return Copies(own, own.inverse())


def _counted(placed: Placed, axis: int, rank: int) -> Counted:
    """The slices of a rank's part that no lower rank holds."""
    own = placed.sharding.owned(rank, placed.shape)[axis]
    found = [
        (at, n)
        for region in regions((placed.sharding,), (placed.shape,))
        if region.ranks[0] == rank
        for _, at, n in common(own, region.owned[axis])
    ]
    return axis, tuple(found)


def _role(
    weight: Weight, plan: TensorPlan, group: TPGroup, *, module_is_summed: bool
) -> Role | None:
    """The role that a weight gives its module, or None."""
    if weight.placed.tail:
        return Tail(group, weight.placed.tail)
    if weight.axis is None:
        return None
    if module_is_summed:
        return Experts(group)
    if weight.leaf == "bias":
        return Alone(group)  # a bias without a matrix: that of a layer comes after it
    if weight.leaf != "weight":
        rule = weight.placed.rule
        if len(weight.placed.shape) == 1 and rule and rule.cut == "column" and rule.between_heads:
            return Alone(group)  # a number for each head, which attention uses for its own
        raise ShardingError(
            f"model: {weight.name!r} is cut, and nothing says what its module "
            f"{type(weight.module).__name__} sends to other ranks; give a rule "
            f"Rule({weight.owner!r}, 'sum') if its results are to be summed"
        )
    return _of_layer(weight, weight.axis, plan, group)


def _of_layer(weight: Weight, axis: int, plan: TensorPlan, group: TPGroup) -> Role:
    """The role of a layer whose matrix is cut along an axis."""
    placed, module = weight.placed, weight.module
    rule: Any = placed.rule
    runs = [placed.sharding.owned(rank, placed.shape)[axis] for rank in range(plan.parts)]
    features = Features.of(runs)
    refuse_kind(weight.name, module, len(placed.shape))
    refuse_stored(weight.name, module, rule.stored)
    if isinstance(module, nn.Embedding):
        refuse_table(weight.name, rule.cut, axis)
    role: Row | Vocab | Column
    if rule.cut == "row":
        refuse_bias(weight.name, module)
        role = Row(group, features if rule.scatter else None, axis == len(placed.shape) - 2)
    elif rule.cut == "vocab" and isinstance(module, nn.Embedding):
        refuse_embedding(weight.name, module, runs)
        role = Vocab(group, runs[group.rank][0], placed.shape[0])
    else:
        role = Column(group, features if rule.gather or rule.cut == "vocab" else None)
    if plan.parts > 1:
        refuse_forward(weight.name, module, type(role), axis)
    return role
