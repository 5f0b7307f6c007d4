"""Line: the ranks that share a model, and how activations and their gradients go between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.distributed.device_mesh import DeviceMesh

from xlayout.algebra import Layout
from xlayout.registry import verbs
from xlayout.shard import Mesh, Sharding, Split, plan_reshard
from xlayout.shard.ranks import run_part

__all__ = ["Line"]

_Map = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Line:
    """The ranks that share a model.

    Attributes:
        mesh: of one axis.
        rank: this process's place on it.
    """

    mesh: DeviceMesh
    rank: int

    def total(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, as a constant."""
        made: torch.Tensor = verbs("torch", "transport").total(x, self.mesh)
        return made

    def shared(self, x: torch.Tensor) -> torch.Tensor:
        """`x`, which is the same on all ranks, and of whose gradient each has a part."""
        return _linear(_same, self.total, x)

    def summed(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, each of which has its whole gradient."""
        return _linear(self.total, _same, x)

    def gathered(self, x: torch.Tensor, split: Split, size: int) -> torch.Tensor:
        """The last axis, of which each rank has its part of `size`, whole on all."""
        own, gather = self._features(split, (*x.shape[:-1], size))
        return _linear(gather, own, x)

    def scattered(self, x: torch.Tensor, split: Split) -> torch.Tensor:
        """This rank's part of the last axis of `x`, which is the same on all ranks."""
        own, gather = self._features(split, tuple(x.shape))
        return _linear(own, gather, x)

    def total_where_held(self, sharding: Sharding, shape: tuple[int, ...]) -> _Map:
        """For what several ranks hold of a weight: the sum of the gradients that these have."""
        if not sharding.spec:
            return self.total
        own = sharding.layout(self.rank, shape)
        placed = partial(own.inverse(), fill=0)
        return lambda gradient: own(self.total(placed(gradient.contiguous())))

    def _features(self, split: Split, shape: tuple[int, ...]) -> tuple[_Map, _Map]:
        """From the whole last axis to this rank's part, and back to all ranks."""
        axis, mesh = len(shape) - 1, Mesh(self.mesh.size(), "tp")
        cut = Sharding(mesh, [*[None] * axis, "tp"], splits={axis: split})
        plan = plan_reshard(Layout.identity(shape), cut, Sharding(mesh, ()))
        return cut.layout(self.rank, shape), lambda x: run_part(plan, (x,), self.rank, self.mesh)[0]


def _same(x: torch.Tensor) -> torch.Tensor:
    return x.view_as(x)


def _linear(forward: _Map, backward: _Map, x: torch.Tensor) -> torch.Tensor:
    linear = verbs("torch", "collective").linear
    (made,) = linear(lambda x: (forward(x),), lambda g: (backward(g.contiguous()),), [x])
    result: torch.Tensor = made
    return result
