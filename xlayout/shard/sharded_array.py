"""ShardedArray: an array on many devices, with its sharding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from xlayout.algebra.shapes import Shape
from xlayout.registry import backend_module
from xlayout.shard.sharding import Sharding

__all__ = ["ShardedArray"]


@dataclass(frozen=True, slots=True)
class ShardedArray:
    """An array on many devices, with its sharding.

    Attributes:
        x: the array; inside `shard_map`, the part of one device.
        framework: torch or jax.
        shape: the shape of the whole array.
        sharding: the sharding of the whole array.
        mesh: the framework's own mesh.
        is_part: whether `x` is one device's part, as inside `shard_map`.
    """

    x: Any
    framework: str
    shape: Shape
    sharding: Sharding
    mesh: Any
    is_part: bool = False

    def cast(self, dtype: Any) -> ShardedArray:
        """The array in another dtype."""
        framework = backend_module(self.framework, "collective")
        return replace(self, x=framework.cast(self.x, framework.dtype_named(dtype)))

    def native(self, sharding: Sharding) -> Any:
        """A sharding on the mesh of this array, as placements or as a NamedSharding."""
        if self.framework == "torch":
            return sharding.to_torch(self.mesh)
        return sharding.to_jax(self.mesh)

    def same_ranks(self, mesh: Any) -> bool:
        """Whether each rank is the same device on another mesh of the framework."""
        same: bool = backend_module(self.framework, "collective").same_ranks(self.mesh, mesh)
        return same

    def describe_mesh(self, mesh: Any) -> str:
        """A mesh of the framework, for error messages."""
        text: str = backend_module(self.framework, "collective").describe_mesh(mesh)
        return text
