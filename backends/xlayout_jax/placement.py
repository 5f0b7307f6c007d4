"""Placement: a NamedSharding as mesh axes and a spec of plain names, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

Spec = tuple[tuple[str, ...], ...]


def describe(sharding: Any, /) -> tuple[tuple[int, ...], tuple[str, ...], Spec]:
    """(mesh shape, axis names, spec); ranks count along `mesh.devices.flat`, never by device id."""
    if not isinstance(sharding, NamedSharding):
        raise TypeError(f"sharding: {sharding}; wanted a NamedSharding, which names its axes")
    spec = sharding.spec
    if PartitionSpec.UNCONSTRAINED in tuple(spec) or spec.unreduced:
        raise ValueError(
            f"sharding: {spec} leaves something to the compiler; name every axis, or None"
        )
    entries = tuple((e,) if isinstance(e, str) else tuple(e or ()) for e in spec)
    mesh = sharding.mesh
    return tuple(mesh.shape.values()), tuple(mesh.axis_names), entries


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
