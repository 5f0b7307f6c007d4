"""Placement: a NamedSharding as mesh axes and a spec of plain names, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

__all__ = ["Spec", "build", "describe", "entries_of", "is_settled", "refuse_unreduced"]

Spec = tuple[tuple[str, ...], ...]


def entries_of(sharding: NamedSharding, /) -> Spec:
    """For each array axis the mesh axes that cut it."""
    spec: Any = sharding.spec
    return tuple([(e,) if isinstance(e, str) else tuple(e or ()) for e in spec.partitions])


def is_settled(sharding: NamedSharding, /) -> bool:
    """Whether no sums are to come: neither of the array, nor, if it is reduced, of its gradient."""
    spec: Any = sharding.spec
    return not (spec.unreduced or spec.reduced)


def refuse_unreduced(sharding: Any, argument: str = "", /) -> None:
    """Refuse sums that are not done: what an op fills in would be summed with them."""
    spec: Any = getattr(sharding, "spec", None)
    if isinstance(sharding, NamedSharding) and spec.unreduced:
        raise ValueError(
            f"{argument}{spec}: its sums are not done, and no shard has its elements; take it to a "
            "spec without `unreduced` first, by jax.sharding.reshard"
        )


def describe(sharding: Any, /) -> tuple[tuple[int, ...], tuple[str, ...], Spec]:
    """(mesh shape, axis names, spec); ranks count along `mesh.devices.flat`, never by device id."""
    if not isinstance(sharding, NamedSharding):
        raise TypeError(
            f"sharding: {type(sharding).__qualname__}; wanted a NamedSharding, which names its axes"
        )
    refuse_unreduced(sharding, "sharding: ")
    spec: Any = sharding.spec
    if PartitionSpec.UNCONSTRAINED in spec.partitions:
        raise ValueError(
            f"sharding: {spec} leaves something to the compiler; name every axis, or None"
        )
    if spec.reduced:
        raise ValueError(
            f"sharding: {spec} has the gradient unreduced; take the array to the same without "
            "`reduced` first, by jax.sharding.reshard"
        )
    kind = sharding.memory_kind
    if kind not in (None, "device"):
        raise ValueError(
            f"sharding: memory kind {kind!r}; wanted device memory: jax.device_put the array there "
            f"first, and the result to {kind!r} afterwards"
        )
    mesh = sharding.mesh
    return tuple(mesh.shape.values()), tuple(mesh.axis_names), entries_of(sharding)


def build(mesh: Any, shape: Sequence[int], names: Sequence[str], spec: Spec, /) -> NamedSharding:
    """The NamedSharding of a spec on a jax.sharding.Mesh of that shape and those names."""
    if not isinstance(mesh, Mesh | AbstractMesh):
        raise TypeError(f"mesh: {type(mesh).__qualname__}; wanted a jax.sharding.Mesh")
    if tuple(mesh.shape.items()) != tuple(zip(names, shape, strict=True)):
        raise ValueError(
            f"mesh: {dict(mesh.shape)}; the sharding is on {dict(zip(names, shape, strict=True))}"
        )
    entries = (axes[0] if len(axes) == 1 else axes or None for axes in spec)
    return NamedSharding(mesh, PartitionSpec(*entries))  # type: ignore[no-untyped-call]
