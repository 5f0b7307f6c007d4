"""Collective: what an exchange needs to know of DTensors, and how it is differentiated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
import torch.fx.traceback as fx_traceback
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import CheckpointPolicy

from xlayout_native.strided import dense_strides
from xlayout_torch.kinds import refuse_hidden

Step = Callable[..., tuple[Any, ...]]

_NAMES = "bool int8 uint8 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
_CARRIED = frozenset(getattr(torch, name) for name in _NAMES.split())


def is_sharded(x: Any, /) -> bool:
    if isinstance(x, torch.Tensor):
        refuse_hidden(x)
    return isinstance(x, DTensor)


def on_one_device(x: Any, /) -> bool:
    return not is_sharded(x)


def replicated_beside(_x: Any, _many: DTensor, /) -> None:
    """None: torch puts no tensor on other devices by itself."""


def rank_of(mesh: DeviceMesh, /) -> int:
    """This process's position in the mesh, row-major."""
    at = mesh.get_coordinate()
    if at is None:
        raise ValueError(f"rank {dist.get_rank()} is not in {mesh}; call it on its ranks only")
    rank = 0
    for n, k in zip(mesh.shape, at, strict=True):
        rank = rank * n + k
    return rank


def same_ranks(mesh: DeviceMesh, other: DeviceMesh, /) -> bool:
    """Whether positions on two meshes are the same ranks."""
    return mesh == other


@lru_cache(256)
def in_order(mesh: DeviceMesh, /) -> bool:
    """Whether DTensor's own collectives, whose groups sort their ranks, have a mesh's order."""
    with _disable_current_modes():  # plain numbers, also while a compiler records
        return all(bool((mesh.mesh.diff(dim=axis) > 0).all()) for axis in range(mesh.ndim))


def is_refusal(error: RuntimeError, /) -> bool:
    """Whether DTensor raised it because it knows no placements for a result of its own ops."""
    return "Sharding propagation failed" in str(error)


def is_carried(dtype: torch.dtype, /) -> bool:
    """Whether the collectives of gloo and of NCCL take a dtype; exchanges here send bytes."""
    return dtype in _CARRIED


def describe_mesh(mesh: DeviceMesh, /) -> str:
    """A mesh, for error messages; two may differ in the order of their ranks alone."""
    with _disable_current_modes():  # plain numbers, also while a compiler records
        return f"{mesh} over ranks {mesh.mesh.tolist()}"


def local(x: Any, /) -> torch.Tensor:
    """This rank's part of a DTensor, differentiably."""
    part: torch.Tensor = _Local.apply(x)  # type: ignore[no-untyped-call]
    return part


def whole(
    part: Any,
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    shape: Any,
    major_to_minor: Sequence[int] | None = None,
    /,
) -> DTensor:
    """The DTensor of which `part` is this rank's; row-major where no order is told, as `part`."""
    strides = dense_strides([max(n, 1) for n in shape], major_to_minor)  # as torch counts
    made: DTensor = _Whole.apply(part, mesh, placements, torch.Size(shape), strides)  # type: ignore[no-untyped-call]
    return made


class _Local(torch.autograd.Function):
    """`to_local`, whose gradient is a `whole`."""

    @staticmethod
    def forward(ctx: Any, x: DTensor) -> torch.Tensor:
        ctx.whole = x.device_mesh, copies(x.placements), x.shape
        ctx.set_materialize_grads(False)
        part = x.to_local()
        return part.view_as(part)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None if gradient is None else whole(gradient, *ctx.whole)


class _Whole(torch.autograd.Function):
    """`from_local`; but autograd sees how a gradient is brought to the placements of the array.

    Of torch's own it does not, so that further derivatives lack whatever lay in other placements.
    """

    @staticmethod
    def forward(
        ctx: Any, part: Any, mesh: DeviceMesh, placements: Any, shape: Any, stride: Any
    ) -> DTensor:
        ctx.placements = copies(placements)
        ctx.set_materialize_grads(False)
        return DTensor.from_local(
            part.view_as(part), mesh, placements, run_check=False, shape=shape, stride=stride
        )

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        if gradient is not None:
            gradient = local(redistributed(gradient, ctx.placements))
        return gradient, None, None, None, None


def linear(
    forward: Step, backward: Step, arrays: Sequence[Any], /, primal: Step | None = None
) -> tuple[Any, ...]:
    """`forward(*arrays)`, with `backward` as its transpose; `backward` has `forward` as its own.

    `primal` makes the results if they are those of `forward` plus a constant, such as fill.
    """
    if torch.is_inference_mode_enabled():  # where a DTensor from outside cannot be detached
        return (primal or forward)(*arrays)
    made: tuple[Any, ...] = _Linear.apply(primal or forward, forward, backward, *arrays)  # type: ignore[no-untyped-call]
    return made


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, primal: Step, forward: Step, backward: Step, *arrays: Any
    ) -> tuple[Any, ...]:
        ctx.forward, ctx.backward = forward, backward
        return primal(*(x.detach() for x in arrays))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        return (None, None, None, *linear(ctx.backward, ctx.forward, gradients))


def transposed(run: Step, shapes: Sequence[tuple[int, ...]], /) -> Step:
    """The transpose of a linear function of tensors of these shapes, as autograd finds it."""

    def back(*gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            given = [gradients[0].new_zeros(shape, requires_grad=True) for shape in shapes]
            made = run(*given)
        used = [(y, g) for y, g in zip(made, gradients, strict=True) if y.requires_grad]
        found: Sequence[Any] = [None] * len(given)
        if used:
            ys, gs = zip(*used, strict=True)
            found = torch.autograd.grad(ys, given, gs, allow_unused=True)
        return tuple(
            computed_zeros(gradients[0], x.shape) if g is None or not x.numel() else g
            for x, g in zip(given, found, strict=True)
        )

    return back


def computed_zeros(like: torch.Tensor, shape: Sequence[int], /) -> torch.Tensor:
    """Zeros that are computed from a tensor, although from none of its elements.

    A compiler moves what is constant from the backward into the forward pass, with the collectives
    that send it: there, ranks that have other things to send would not expect it.
    """
    zero = like.flatten()[:0].sum()
    return zero.expand(shape).clone(memory_format=torch.contiguous_format)


def partial(x: DTensor, /) -> set[int]:
    """The mesh axes along which a DTensor is still to be summed."""
    return {
        k for k, p in enumerate(x.placements) if isinstance(p, Partial) and p.reduce_op == "sum"
    }


def copies(placements: Sequence[Placement], /) -> list[Placement]:
    """Placements with copies in place of sums that are still to be made."""
    return [Replicate() if isinstance(p, Partial) else p for p in placements]


LISTENERS: list[Callable[[DTensor, DTensor, Callable[[Any], torch.Tensor]], None]] = []
"""Called after every gather with its result, its source, and a function that gathers again."""


@contextmanager
def recomputed() -> Iterator[None]:
    """What a compiler records in this context is recomputed in the backward pass, not saved."""
    if not torch.compiler.is_compiling():
        yield
        return
    meta = fx_traceback.current_meta
    before = meta.get("recompute")
    meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    try:
        yield
    finally:
        del meta["recompute"]
        if before is not None:
            meta["recompute"] = before


def redistributed(x: Any, placements: Sequence[Placement], /) -> DTensor:
    """`x` under other placements, by DTensor's own collectives."""
    made: DTensor = x.redistribute(x.device_mesh, placements)
    return made


def dtype_named(given: Any, argument: str = "dtype", /) -> torch.dtype:
    """A dtype, or the one of that name; `argument` is what gave it."""
    found = getattr(torch, given, None) if isinstance(given, str) else given
    if not isinstance(found, torch.dtype):
        raise TypeError(f"{argument}: {given!r}; wanted a torch.dtype or its name")
    return found


def dtype_of_sum(asked: Any, dtype: Any, /) -> Any:
    """The dtype in which gradients are summed: as asked, but float64 and complex stay as wide.

    Raises:
        TypeError: for one that holds no gradients.
    """
    if not (asked.is_floating_point or asked.is_complex):
        raise TypeError(f"reduce_dtype: {asked}; wanted a dtype of floats, which gradients are")
    kept = dtype.is_complex or dtype == torch.float64
    return torch.promote_types(asked, dtype) if kept else asked


def cast(x: Any, dtype: Any, /) -> Any:
    return x.to(dtype)
