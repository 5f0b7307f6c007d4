"""Laid: an array that many devices hold, together with how it lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from xlayout.algebra.shapes import Shape
from xlayout.registry import verbs
from xlayout.shard.sharding import Sharding

__all__ = ["Laid"]


@dataclass(frozen=True, slots=True)
class Laid:
    """An array that many devices hold, and how it lies.

    Attributes:
        x: the array; inside `shard_map`, the part of one device.
        framework: torch or jax.
        shape: that of the whole.
        sharding: how the whole lies.
        mesh: the framework's own mesh.
        is_part: whether `x` is one device's part, as inside `shard_map`.
    """

    x: Any
    framework: str
    shape: Shape
    sharding: Sharding
    mesh: Any
    is_part: bool = False

    def cast(self, dtype: Any) -> Laid:
        """The same in another dtype."""
        own = verbs(self.framework, "collective")
        return replace(self, x=own.cast(self.x, own.dtype_named(dtype)))
