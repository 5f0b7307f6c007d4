"""Parallel: a module of torch on several ranks, each with its part of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from xlayout.errors import ShardingError
from xlayout.torch.heads import counts_own_heads, slices_alibi
from xlayout.torch.line import Features, Line
from xlayout.torch.roles import Column, Experts, Role, Row, Tail, Vocab, played, runs_as

if TYPE_CHECKING:
    from xlayout.tp.planning import Placed, TensorPlan

__all__ = ["along", "parallelize"]

_OUT = ("out_features", "nf", "num_embeddings")
_IN = ("in_features", "nx")


def along(mesh: Any) -> tuple[DeviceMesh, int]:
    """The mesh of one axis along which a model is shared, and its size.

    Raises:
        TypeError: for something that is not a DeviceMesh.
        ShardingError: for several axes of which none is "tp".
    """
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"mesh: a {type(mesh).__name__}; wanted a torch DeviceMesh")
    if mesh.ndim > 1:
        if "tp" not in (mesh.mesh_dim_names or ()):
            raise ShardingError(
                f"mesh: axes {mesh.mesh_dim_names}; wanted one axis, or one named 'tp'"
            )
        mesh = mesh["tp"]
    return mesh, mesh.size()


@dataclass(frozen=True, slots=True)
class _Weight:
    """A parameter in its module."""

    name: str
    module: nn.Module
    leaf: str
    placed: Placed

    @property
    def whole(self) -> nn.Parameter | None:
        return self.module._parameters.get(self.leaf)

    @property
    def axis(self) -> int | None:
        """Which axis is cut."""
        spec = self.placed.sharding.spec
        return len(spec) - 1 if spec else None


def parallelize(model: nn.Module, mesh: DeviceMesh, plan: TensorPlan) -> nn.Module:
    """The module, changed for this rank; see `xlayout.tp.parallelize`."""
    line = Line.along(mesh)
    weights = list(_weights(model, plan))
    roles = dict(_roles(model, plan, weights, line))
    _refuse_other_ties(weights)
    parents = _attention(model, plan)
    made: dict[int, nn.Parameter] = {}
    for weight in weights:
        _cut(weight, line, made)
    for name, role in roles.items():
        runs_as(model.get_submodule(name), role)
    if parents:
        _count_heads(parents, plan, line.rank)
    return model


def _weights(model: nn.Module, plan: TensorPlan) -> Iterator[_Weight]:
    for name, placed in plan.items():
        owner, _, leaf = name.rpartition(".")
        weight = _Weight(name, model.get_submodule(owner), leaf, placed)
        if weight.whole is not None:
            yield weight
        elif placed.sharding.spec:
            raise ShardingError(f"model: {name!r} is a buffer, and only parameters are cut")


def _roles(
    model: nn.Module, plan: TensorPlan, weights: list[_Weight], line: Line
) -> Iterator[tuple[str, Role]]:
    summed = {
        name
        for name, _ in model.named_modules(remove_duplicate=False)
        for rule in plan.rules
        if rule.cut == "sum" and rule.match(name) is not None
    }
    seen: set[str] = set()
    cut = {weight.name.rpartition(".")[0] for weight in weights if weight.axis is not None}
    for weight in weights:
        owner = weight.name.rpartition(".")[0]
        if weight.axis is None and owner in summed & cut:
            raise ShardingError(
                f"model: {weight.name!r} is whole on every rank, in a module whose results are "
                f"summed: it would count {plan.parts} times"
            )
        if (weight.axis is None and not weight.placed.tail) or owner in seen:
            continue
        if played(weight.module):
            raise ShardingError(f"model: {owner!r} is on several ranks already")
        seen.add(owner)
        if weight.placed.tail:
            yield owner, Tail(line, weight.placed.tail)
        elif owner in summed:
            yield owner, Experts(line)
        elif weight.leaf == "weight":
            yield owner, _role(weight, line, plan)
        else:
            raise ShardingError(
                f"model: {weight.name!r} is cut, and nothing says what its module "
                f"{type(weight.module).__name__} sends to other ranks; give a rule "
                f"Rule({owner!r}, 'sum') if its results are to be summed"
            )


def _role(weight: _Weight, line: Line, plan: TensorPlan) -> Role:
    rule, placed, module = weight.placed.rule, weight.placed, weight.module
    assert rule is not None
    assert weight.axis is not None
    features = _features(placed, weight.axis, plan.parts)
    if rule.cut == "row":
        linear = isinstance(module, nn.Linear) or hasattr(module, "nf")
        if getattr(module, "bias", None) is not None and not linear:
            raise ShardingError(
                f"model: {weight.name!r} belongs to a {type(module).__name__}, whose bias is to be "
                "added once; of layers with a bias only linear ones can be cut by rows"
            )
        return Row(line, features if rule.scatter else None, weight.axis == len(placed.shape) - 2)
    if rule.cut == "vocab" and isinstance(module, nn.Embedding):
        _refuse_embedding(weight, plan.parts)
        return Vocab(line, placed.sharding.owned(line.rank, placed.shape)[0][0])
    return Column(line, features if rule.gather or rule.cut == "vocab" else None)


def _features(placed: Placed, axis: int, parts: int) -> Features:
    runs = (placed.sharding.owned(rank, placed.shape)[axis] for rank in range(parts))
    return Features(tuple(runs))


def _refuse_embedding(weight: _Weight, parts: int) -> None:
    module: Any = weight.module
    wrong = next(
        (name for name in ("max_norm", "scale_grad_by_freq", "sparse") if getattr(module, name)), ""
    )
    if wrong:
        raise ShardingError(f"model: {weight.name!r} has {wrong}, which needs the whole embedding")
    if module.num_embeddings < parts:
        raise ShardingError(
            f"model: {weight.name!r} has {module.num_embeddings} rows for {parts} ranks; wanted at "
            "least one for each"
        )


def _refuse_other_ties(weights: list[_Weight]) -> None:
    first: dict[int, _Weight] = {}
    for weight in weights:
        other = first.setdefault(id(weight.whole), weight)
        if other.placed.sharding != weight.placed.sharding:
            raise ShardingError(
                f"model: {other.name!r} and {weight.name!r} are one parameter, cut as "
                f"{other.placed.sharding} and as {weight.placed.sharding}; give both one rule"
            )


def _cut(weight: _Weight, line: Line, made: dict[int, nn.Parameter]) -> None:
    """Put this rank's part of a parameter in its place; a tied one is cut once."""
    whole, sharding, shape = weight.whole, weight.placed.sharding, weight.placed.shape
    assert whole is not None
    if id(whole) not in made:
        part = whole
        if sharding.spec:
            local = sharding.local_shape(line.rank, shape)
            layout = sharding.layout(line.rank, shape)
            data = whole.new_empty(local) if whole.is_meta else layout(whole.detach())
            part = nn.Parameter(data, requires_grad=whole.requires_grad)
        if part.requires_grad and _in_parts(weight.placed):
            hook = line.total_where_held(sharding, shape)
            part.register_hook(hook)  # type: ignore[no-untyped-call]
        made[id(whole)] = made[id(part)] = part
    weight.module._parameters[weight.leaf] = made[id(whole)]
    rule, axis = weight.placed.rule, weight.axis
    if rule is not None and axis is not None:
        _resize(weight.module, _IN if rule.cut == "row" else _OUT, shape[axis], line, weight)


def _in_parts(placed: Placed) -> bool:
    """Whether every rank has but a part of the gradient of what it holds."""
    sharding = placed.sharding
    if sharding.spec:
        return sharding.split(len(sharding.spec) - 1).overlaps
    return placed.rule is not None and placed.rule.partial_grads


def _resize(
    module: nn.Module, names: tuple[str, ...], before: int, line: Line, weight: _Weight
) -> None:
    """Tell a layer its own number of features."""
    now = weight.placed.sharding.local_shape(line.rank, weight.placed.shape)[weight.axis or 0]
    for name in names:
        if getattr(module, name, None) == before:
            setattr(module, name, now)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        first = weight.placed.sharding.owned(line.rank, weight.placed.shape)[0][0].start
        inside = first <= module.padding_idx < first + now
        module.padding_idx = module.padding_idx - first if inside else None


def _attention(model: nn.Module, plan: TensorPlan) -> list[nn.Module]:
    """The modules whose layers are cut between heads."""
    found: dict[str, None] = {}
    for name, placed in plan.items():
        rule = placed.rule
        if (
            rule is not None
            and rule.cut == "column"
            and "plain" not in rule.terms
            and not rule.gather
        ):
            found[name.rpartition(".")[0].rpartition(".")[0]] = None
    return [model.get_submodule(name) for name in found]


def _count_heads(parents: list[nn.Module], plan: TensorPlan, rank: int) -> None:
    own = [plan.heads_on(r) for r in range(plan.parts)]
    numbers = plan.numbers
    whole = numbers.heads or 0, numbers.kv_heads or numbers.heads or 0
    mine = own[rank]
    first = sum(heads for heads, _ in own[:rank])
    for module in parents:
        counts_own_heads(module, whole, mine)
        slices_alibi(module, whole[0], first, mine[0])
