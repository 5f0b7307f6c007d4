"""Model: a torch module made tensor-parallel, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from xlayout.errors import ShardingError
from xlayout.torch.parallel.assignment import Weight, assignments, weights_of
from xlayout.torch.parallel.heads import (
    counts_heads,
    forbid_dropout,
    refuse_modules_of_heads,
    refuse_other_heads,
    set_local_heads,
    slice_alibi,
)
from xlayout.torch.parallel.roles import assign_role
from xlayout.torch.parallel.saving import guard_save_pretrained
from xlayout.torch.parallel.tp_group import TPGroup

if TYPE_CHECKING:
    from xlayout.tp.value import TensorPlan

__all__ = ["parallelize", "tp_mesh"]

_OUT = ("out_features", "nf", "num_embeddings")
_IN = ("in_features", "nx")


def tp_mesh(mesh: Any) -> tuple[DeviceMesh, int]:
    """The one-axis mesh over which a model is sharded, and its size.

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


def parallelize(model: nn.Module, mesh: DeviceMesh, plan: TensorPlan) -> nn.Module:
    """The module, changed for this rank; see `xlayout.tp.parallelize`."""
    group = TPGroup.of_mesh(mesh)
    weights = weights_of(model, plan)
    assigned = assignments(model, plan, weights, group)
    parents = _attention(model, plan)
    made: dict[int, nn.Parameter] = {}
    for weight in weights:
        _cut(weight, group.rank, made)
    for each in assigned:
        assign_role(each.module, each.role, each.copies, each.counted)
    if parents:
        _count_heads(parents, plan, group.rank)
    if plan.parts > 1:
        guard_save_pretrained(model)
    return model


def _cut(weight: Weight, rank: int, made: dict[int, nn.Parameter]) -> None:
    """Replace a parameter by this rank's part; a tied one is cut once."""
    whole, axis = weight.parameter, weight.axis
    assert whole is not None
    if axis is None or made.get(id(whole)) is whole:  # a module may occur twice
        return
    sharding, shape = weight.placed.sharding, weight.placed.shape
    local = sharding.local_shape(rank, shape)
    if id(whole) not in made:
        layout = sharding.layout(rank, shape)
        data = whole.new_empty(local) if whole.is_meta else layout(whole.detach())
        part = nn.Parameter(data, requires_grad=whole.requires_grad)
        part.__dict__.update(whole.__dict__)
        made[id(whole)] = made[id(part)] = part
    weight.module._parameters[weight.leaf] = made[id(whole)]
    rule: Any = weight.placed.rule
    for name in _IN if rule.cut == "row" else _OUT:
        if getattr(weight.module, name, None) == shape[axis]:
            setattr(weight.module, name, local[axis])
    if isinstance(weight.module, nn.Embedding):
        _shift_padding(weight.module, sharding.owned(rank, shape)[0][0])


def _shift_padding(module: nn.Embedding, rows: range) -> None:
    """Count the padding row of an embedding among the rows of this rank."""
    if module.padding_idx is not None:
        inside = module.padding_idx in rows
        module.padding_idx = module.padding_idx - rows.start if inside else None


def _attention(model: nn.Module, plan: TensorPlan) -> list[nn.Module]:
    """The modules whose layers are cut between heads.

    Around a layer there may be a module that counts none, as an adapter is: then it is the one
    around that which does.
    """
    found: dict[str, None] = {}
    for name, placed in plan.items():
        rule = placed.rule
        if rule is None or rule.cut != "column" or rule.gather or not rule.between_heads:
            continue
        layer, _, leaf = name.rpartition(".")
        owner = layer.rpartition(".")[0] if leaf in ("weight", "bias") else layer
        around = owner.rpartition(".")[0]
        inner, outer = model.get_submodule(owner), model.get_submodule(around)
        found[owner] = None
        if counts_heads(outer) and not counts_heads(inner):
            found[around] = None
    heads, kv_heads = plan.numbers.heads or 0, plan.numbers.kv_heads or 0
    for name in found:
        refuse_other_heads(name, model.get_submodule(name), heads)
        refuse_modules_of_heads(name, model.get_submodule(name), (heads, kv_heads))
    return [model.get_submodule(name) for name in found]


def _count_heads(parents: list[nn.Module], plan: TensorPlan, rank: int) -> None:
    own = [plan.heads_on(r) for r in range(plan.parts)]
    whole = plan.numbers.heads or 0, plan.numbers.kv_heads or 0
    first = sum(before for before, _ in own[:rank])
    for module in parents:
        set_local_heads(module, whole, own[rank])
        if len(set(own)) > 1:
            forbid_dropout(module)
        slice_alibi(module, whole[0], first, own[rank][0])
