"""Run: a model made to run on several ranks, in the way of its framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xlayout.algebra.shapes import a_type
from xlayout.errors import SizeError
from xlayout.registry import backend_named
from xlayout.tp import planning
from xlayout.tp.rules import Rule
from xlayout.tp.state import check_plan, check_weights
from xlayout.tp.tree import unflatten
from xlayout.tp.value import TensorPlan

__all__ = ["parallelize"]


def parallelize(
    model: Any,
    mesh: Any,
    /,
    *,
    plan: TensorPlan | None = None,
    rules: str | Mapping[str, str] | Sequence[Rule] | None = None,
    config: Any = None,
    grain: int = 1,
) -> Any:
    """Run a model on several ranks, each of which holds a part of the weights.

    A torch module is changed in place: every process keeps its rank's part of each parameter and
    frees the whole; layers communicate as their rules say (a column-parallel layer sums the
    gradient of its input, a row-parallel one its outputs); attention modules get the rank's head
    counts. Create the optimizer afterwards. Code that bypasses a layer's `forward` is not covered.

    Nested dicts of JAX arrays are placed on a mesh with the shardings of the plan, and returned as
    new dicts. The compiler does the rest on axes of type Auto; on Explicit ones a row-parallel
    product must name its `out_sharding`. JAX cuts evenly: fused weights are cut without regard to
    their segments, which costs communication but not correctness, and a weight that a few
    neighbours would hold copies of is whole on all ranks.

    Args:
        model: an `nn.Module`, the same on all ranks (also on the meta device); or nested dicts of
            JAX arrays, or of `jax.ShapeDtypeStruct`, which come back with their shardings.
        mesh: a `DeviceMesh` of one axis, or with an axis "tp"; or a `jax.sharding.Mesh` likewise.
        plan: from `plan`; by default one is made from the other arguments.
        rules: see `plan`.
        config: see `plan`.
        grain: see `plan`.

    Returns:
        The module, or new dicts.

    Raises:
        TypeError: for a model or a mesh of another kind.
        ImportError: for nested dicts where JAX is not installed.
        ShardingError: for layers that cannot be run this way, before anything is changed.
        SizeError: for a plan for another number of ranks than the mesh has.
        ShapeError: for weights that do not match the plan.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> weights = {"mlp": {"up_proj": {"kernel": jnp.ones((2, 4))}}}
    >>> mesh = jax.make_mesh((1,), ("tp",))
    >>> made = parallelize(weights, mesh, rules="llama")
    >>> tuple(made["mlp"]["up_proj"]["kernel"].sharding.spec)
    (None, 'tp')
    """
    side = _side(model)
    mesh, parts = side.tp_mesh(mesh)
    if not isinstance(model, Mapping):
        side.refuse_twice(model)
    if plan is None:
        plan = planning.plan(model, parts, rules=rules, config=config, grain=grain)
    elif rules is not None or config is not None or grain != 1:
        raise TypeError("plan: given together with what one is made of; leave one of them out")
    if check_plan(plan).parts != parts:
        raise SizeError(f"plan: for {plan.parts} ranks; the mesh has {parts}")
    arrays = check_weights(model, plan, "model")
    if not isinstance(model, Mapping):
        return side.parallelize(model, mesh, plan)
    return unflatten(model, side.parallelize(arrays, mesh, plan).__getitem__)


def _side(model: Any) -> Any:
    """The module that parallelizes models of this framework."""
    if isinstance(model, Mapping):
        try:
            backend_named("jax")
        except ImportError as error:
            raise ImportError(
                f"model: nested dicts run in JAX, and {error}; of torch, give the module itself"
            ) from error
        from xlayout.jax import parallel as jax_side

        return jax_side
    if any(base.__module__ == "torch.nn.modules.module" for base in type(model).__mro__):
        from xlayout.torch import parallel as torch_side

        return torch_side
    raise TypeError(
        f"model: {a_type(model)}; wanted a torch.nn.Module, or nested dicts of JAX arrays"
    )
