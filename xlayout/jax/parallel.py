"""Parallel: nested dicts of weights, placed on a mesh as a plan says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xlayout.algebra.shapes import a_type
from xlayout.errors import ShardingError, SizeError
from xlayout.registry import backend_of

if TYPE_CHECKING:
    from xlayout.tp.value import Placed, TensorPlan

__all__ = ["parallelize", "tp_mesh"]


def tp_mesh(mesh: Any) -> tuple[tuple[Mesh, str], int]:
    """A mesh with the axis over which a model is sharded, and the size of that axis.

    Raises:
        TypeError: for something that is not a jax.sharding.Mesh.
        ShardingError: for several axes of which none is "tp".
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f"mesh: {a_type(mesh)}; wanted a jax.sharding.Mesh, as nested dicts run in "
            "JAX; of torch, give the module itself"
        )
    if len(mesh.axis_names) > 1 and "tp" not in mesh.axis_names:
        raise ShardingError(f"mesh: axes {mesh.axis_names}; wanted one axis, or one named 'tp'")
    axis = mesh.axis_names[0] if len(mesh.axis_names) == 1 else "tp"
    return (mesh, axis), mesh.shape[axis]


def parallelize(
    arrays: Mapping[str, Any], mesh: tuple[Mesh, str], plan: TensorPlan
) -> dict[str, Any]:
    """The weights by their names, on the mesh; see `xlayout.tp.parallelize`."""
    places = {name: _place(name, placed, mesh, plan.parts) for name, placed in plan.items()}
    for name in places:
        inside = jax.tree.leaves(arrays[name])  # a flax variable holds an array
        if not all(isinstance(x, jax.ShapeDtypeStruct) or _is_array(x, name) for x in inside):
            raise TypeError(
                f"model[{name!r}]: {a_type(arrays[name])}; wanted an array of JAX or "
                "numpy (xlayout.to_jax takes a whole dict), or a jax.ShapeDtypeStruct"
            )
    return {name: _put(arrays[name], place) for name, place in places.items()}


def _is_array(x: Any, name: str) -> bool:
    return backend_of(x, f"model[{name!r}]").name in ("jax", "numpy")


def _put(array: Any, place: NamedSharding) -> Any:
    if isinstance(array, jax.ShapeDtypeStruct):
        shaped: Any = jax.ShapeDtypeStruct
        return shaped(array.shape, array.dtype, sharding=place)
    return jax.device_put(array, place)


def _place(name: str, placed: Placed, mesh: tuple[Mesh, str], parts: int) -> NamedSharding:
    devices, axis = mesh
    cut = placed.axis
    if cut is None or placed.overlaps:
        return NamedSharding(devices, PartitionSpec())  # type: ignore[no-untyped-call]
    n = placed.shape[cut]
    if n % parts:
        raise SizeError(
            f"model[{name!r}]: axis {cut} = {n} does not divide among {parts} devices, and JAX "
            "cuts evenly; pad it, or give a rule that leaves it 'whole'"
        )
    return NamedSharding(devices, PartitionSpec(*[None] * cut, axis))  # type: ignore[no-untyped-call]
