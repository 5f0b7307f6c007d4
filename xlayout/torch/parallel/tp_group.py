"""TPGroup: the ranks that share a model, and the differentiable collectives between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from xlayout.algebra import Layout
from xlayout.registry import backend_module
from xlayout.shard.sharding import stored

__all__ = ["Copies", "Features", "TPGroup"]

_TRANSPORT = backend_module("torch", "transport")  # at import: no tracer follows an import
_Map = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class TPGroup:
    """The ranks that share a model.

    Attributes:
        rank: this process's position in the mesh.
        name: the name of the process group.
        order: the position of each rank in that group, which is sorted by global rank.
    """

    rank: int
    name: str
    order: tuple[int, ...]

    @classmethod
    def of_mesh(cls, mesh: DeviceMesh) -> TPGroup:
        """The ranks of a mesh with one axis."""
        ranks = mesh.mesh.flatten().tolist()
        order = tuple(map(sorted(ranks).index, ranks))
        # In the mesh: the process group sorts its ranks.
        rank = backend_module("torch", "collective").rank_of(mesh)
        return cls(rank, mesh.get_group().group_name, order)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, without a gradient."""
        made: torch.Tensor = _TRANSPORT.total(x, self.name)
        return made

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """The tensors of all ranks along a new first axis, without a gradient."""
        made: torch.Tensor = _TRANSPORT.stacked(x, self.name, len(self.order))
        return made

    def shared(self, x: torch.Tensor) -> torch.Tensor:
        """Identity forward, all-reduce backward: for an `x` that all ranks use in part."""
        return _linear(_same, self.all_reduce, x)

    def summed(self, x: torch.Tensor) -> torch.Tensor:
        """All-reduce forward, identity backward."""
        return _linear(self.all_reduce, _same, x)

    def gathered(self, x: torch.Tensor, features: Features) -> torch.Tensor:
        """All-gather of the last axis forward; backward each rank takes its slice."""
        return _linear(partial(self._whole, features), partial(self._own, features), x)

    def scattered(self, x: torch.Tensor, features: Features) -> torch.Tensor:
        """This rank's slice of the last axis forward; backward an all-gather."""
        return _linear(partial(self._own, features), partial(self._whole, features), x)

    def held(self, weight: torch.Tensor, copies: Copies) -> torch.Tensor:
        """Identity forward; backward the gradient is summed over the ranks that hold copies."""
        backward = self.all_reduce if copies.own is None else partial(self._held, copies)
        return _linear(_same, backward, weight)

    def _held(self, copies: Copies, gradient: torch.Tensor) -> torch.Tensor:
        assert copies.own is not None
        assert copies.placed is not None
        made: torch.Tensor = copies.own(self.all_reduce(copies.placed(gradient, fill=0)))
        return made

    def _own(self, features: Features, x: torch.Tensor) -> torch.Tensor:
        runs = features.runs[self.rank]
        return torch.cat([x[..., run.start : run.stop] for run in runs] or [x[..., :0]], dim=-1)

    def _whole(self, features: Features, x: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(x, (0, features.widest - x.shape[-1]))
        parts = self.all_gather(padded)
        found = [parts[self.order[r]][..., at : at + n] for r, at, n in features.order]
        return torch.cat(found or [parts[0]], dim=-1)


@dataclass(frozen=True, slots=True)
class Copies:
    """A part of a weight of which several ranks hold copies.

    Attributes:
        own: from the whole weight to this rank's part; None if that is the whole.
        placed: from that part to its place in the whole.
    """

    own: Layout | None = None
    placed: Layout | None = None


@dataclass(frozen=True, slots=True)
class Features:
    """How the last axis of an activation is cut: like the weight that produces or consumes it.

    It is cut by plain slices instead of a layout, so that all other axes may have any size.

    Attributes:
        runs: the ranges that each rank has.
        widest: the most features that a rank has.
        order: (rank, offset on that rank, length) of each range, from the first feature on.
    """

    runs: tuple[tuple[range, ...], ...]
    widest: int
    order: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, runs: Sequence[tuple[range, ...]]) -> Features:
        """The features of ranks that have these ranges."""
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
    """A linear map with its transpose, in a form that Dynamo can trace."""

    @staticmethod
    def forward(x: torch.Tensor, forward: _Map, _backward: _Map) -> torch.Tensor:
        return forward(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, _output: Any) -> None:
        ctx.maps = inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        forward, backward = ctx.maps
        return _linear(backward, forward, gradient), None, None


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
    """`f` applied to each element of a batch."""
    return lambda rows: torch.stack([f(row) for row in rows.unbind()])
