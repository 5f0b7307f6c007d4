"""Model: a torch module made tensor-parallel, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from xlayout.algebra.shapes import a_type
from xlayout.errors import ShardingError
from xlayout.torch.parallel.assignment import Weight, assignments, weights_of
from xlayout.torch.parallel.attention import attentions_of, count_heads
from xlayout.torch.parallel.roles import WithRole, assign_role
from xlayout.torch.parallel.saving import guard_save_pretrained
from xlayout.torch.parallel.sizes import IN, OUT, resize, shift_padding
from xlayout.torch.parallel.tp_group import TPGroup

if TYPE_CHECKING:
    from xlayout.tp.value import TensorPlan

__all__ = ["parallelize", "tp_mesh"]


def tp_mesh(mesh: Any) -> tuple[DeviceMesh, int]:
    """The one-axis mesh over which a model is sharded, and its size.

    Raises:
        TypeError: for something that is not a DeviceMesh.
        ShardingError: for several axes of which none is "tp".
    """
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"mesh: {a_type(mesh)}; wanted a torch DeviceMesh")
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
    attentions = attentions_of(model, weights, plan)
    made: dict[int, nn.Parameter] = {}
    for weight in weights:
        _cut(weight, group.rank, made)
    for each in assigned:
        assign_role(each.module, each.role, each.copies, each.counted)
    for attention in attentions:
        count_heads(attention, plan, group.rank)
    _call_layers(model)
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
    resize(weight.module, IN if rule.cut == "row" else OUT, shape[axis], local[axis])
    if isinstance(weight.module, nn.Embedding):
        shift_padding(weight.module, sharding.owned(rank, shape)[0][0])


def _call_layers(model: nn.Module) -> None:
    """Make torch's encoders call their layers, where they would rather call one function.

    That function, for evaluation without gradients, takes the weights and would not sum anything.
    """
    for module in model.modules():
        if any(isinstance(layer, WithRole) for layer in module.modules()):
            if isinstance(module, nn.TransformerEncoderLayer):
                module.activation_relu_or_gelu = 0
            elif isinstance(module, nn.TransformerEncoder):
                module.use_nested_tensor = False
