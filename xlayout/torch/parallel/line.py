"""Line: the ranks that share a model, and how activations and their gradients go between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from xlayout.algebra import Layout
from xlayout.registry import verbs
from xlayout.shard.sharding import stored

__all__ = ["Copies", "Features", "Line"]

_TRANSPORT = verbs("torch", "transport")  # here, because no tracer follows an import
_Map = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Line:
    """The ranks that share a model.

    Attributes:
        rank: this process's place among them.
        group: the name of their process group.
        order: the place of each rank in that, where ranks ascend.
    """

    rank: int
    group: str
    order: tuple[int, ...]

    @classmethod
    def along(cls, mesh: DeviceMesh) -> Line:
        """The ranks of a mesh of one axis."""
        ranks = mesh.mesh.flatten().tolist()
        order = tuple(map(sorted(ranks).index, ranks))
        rank = verbs("torch", "collective").rank_of(mesh)  # on the mesh; groups sort theirs
        return cls(rank, mesh.get_group().group_name, order)

    def total(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, as a constant."""
        made: torch.Tensor = _TRANSPORT.total(x, self.group)
        return made

    def every(self, x: torch.Tensor) -> torch.Tensor:
        """The tensors of all ranks along a new first axis, as a constant."""
        made: torch.Tensor = _TRANSPORT.stacked(x, self.group, len(self.order))
        return made

    def shared(self, x: torch.Tensor) -> torch.Tensor:
        """`x`, which is the same on all ranks, and of whose gradient each has a part."""
        return _linear(_same, self.total, x)

    def summed(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, each of which has its whole gradient."""
        return _linear(self.total, _same, x)

    def gathered(self, x: torch.Tensor, features: Features) -> torch.Tensor:
        """The last axis, of which each rank has its part, whole on all."""
        return _linear(partial(self._whole, features), partial(self._own, features), x)

    def scattered(self, x: torch.Tensor, features: Features) -> torch.Tensor:
        """This rank's part of the last axis of `x`, which is the same on all ranks."""
        return _linear(partial(self._own, features), partial(self._whole, features), x)

    def held(self, weight: torch.Tensor, copies: Copies) -> torch.Tensor:
        """A weight of which several ranks hold the same, and whose gradients they add up."""
        return _linear(
            _same, self.total if copies.own is None else partial(self._held, copies), weight
        )

    def _held(self, copies: Copies, gradient: torch.Tensor) -> torch.Tensor:
        assert copies.own is not None
        assert copies.placed is not None
        total = self.total(copies.placed(gradient, fill=0))
        made: torch.Tensor = copies.own(total)
        return made

    def _own(self, features: Features, x: torch.Tensor) -> torch.Tensor:
        runs = features.runs[self.rank]
        return torch.cat([x[..., run.start : run.stop] for run in runs] or [x[..., :0]], dim=-1)

    def _whole(self, features: Features, x: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(x, (0, features.widest - x.shape[-1]))
        parts = self.every(padded)
        return torch.cat(
            [parts[self.order[r]][..., at : at + n] for r, at, n in features.order], dim=-1
        )


@dataclass(frozen=True, slots=True)
class Copies:
    """What several ranks hold of a weight.

    Attributes:
        own: from the whole weight to this rank's part; None where that is the whole.
        placed: from that part to its place in the whole.
    """

    own: Layout | None = None
    placed: Layout | None = None


@dataclass(frozen=True, slots=True)
class Features:
    """How the last axis of an activation is cut: as that of the weight that makes or takes it.

    It is cut by plain slices, and not by a layout, so that all other axes may have any size.

    Attributes:
        runs: the stretches that each rank has.
        widest: the most features that a rank has.
        order: (rank, where it is among its features, how many), from the first feature to the last.
    """

    runs: tuple[tuple[range, ...], ...]
    widest: int
    order: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, runs: Sequence[tuple[range, ...]]) -> Features:
        """The features of ranks that have these stretches."""
        found = sorted(
            (start, rank, at, n) for rank, own in enumerate(runs) for start, at, n in stored(own)
        )
        order = tuple((rank, at, n) for _, rank, at, n in found)
        return cls(tuple(runs), max(sum(map(len, own)) for own in runs), order)


def _same(x: torch.Tensor) -> torch.Tensor:
    return x.view_as(x)


def _linear(forward: _Map, backward: _Map, x: torch.Tensor) -> torch.Tensor:
    kind = _Linear if torch.compiler.is_compiling() else _LinearForAll
    made: torch.Tensor = kind.apply(x, forward, backward)  # type: ignore[no-untyped-call]
    return made


class _Linear(torch.autograd.Function):
    """A linear map with its transpose; Dynamo follows it."""

    @staticmethod
    def forward(x: torch.Tensor, forward: _Map, _backward: _Map) -> torch.Tensor:
        return forward(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, _output: Any) -> None:
        ctx.maps = inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        forward, backward = ctx.maps
        return _linear(backward, forward, gradient.contiguous()), None, None


class _LinearForAll(_Linear):
    """The same, with the methods that `torch.func` needs and Dynamo refuses."""

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: Any) -> torch.Tensor:
        forward, backward = ctx.maps
        return _linear(forward, backward, tangent)

    @staticmethod
    def vmap(_info: Any, in_dims: Any, x: torch.Tensor, forward: _Map, backward: _Map) -> Any:
        rows = x.movedim(in_dims[0], 0)
        return _linear(_each(forward), _each(backward), rows), 0


def _each(f: _Map) -> _Map:
    """A map for every one of a batch."""
    return lambda rows: torch.stack([f(row) for row in rows.unbind()])
