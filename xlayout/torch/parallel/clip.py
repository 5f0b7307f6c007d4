"""Clip: gradients of a tensor-parallel model, by their global norm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from xlayout.algebra.shapes import a_type
from xlayout.errors import ShardingError
from xlayout.torch.parallel.refusals import is_flat
from xlayout.torch.parallel.roles import WithRole

__all__ = ["clip_grad_norm_"]


def clip_grad_norm_(model: nn.Module, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """`torch.nn.utils.clip_grad_norm_` for a model of `xlayout.tp.parallelize`.

    Torch's own takes the norm of each rank's part: every rank would clip by another factor, and
    copies of the same parameter would drift apart.

    Args:
        model: the model, or a submodule with sharded layers. All ranks must call this.
        max_norm: gradients are scaled down to this norm, in place.
        norm_type: the p of the norm, above 0; it may be infinity.

    Returns:
        The norm that the gradients of the whole model had.

    Raises:
        TypeError: for something that is not a module, such as its parameters.
        ShardingError: for a model that is not on several ranks, or with the flat parameters of
            `FullyShardedDataParallel`, which do not tell where in a weight their parts lie. For a
            p up to 0, which makes no norm: that of two parts depends on how they are cut.

    >>> clip_grad_norm_(torch.nn.Linear(2, 2), 1.0)
    Traceback (most recent call last):
    ...
    xlayout.errors.ShardingError: model: no layer of it is on several ranks; torch's own function...
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: {a_type(model)}; wanted the module itself, not its parameters")
    norm_type = float(norm_type)  # as torch's own, which takes "inf" too
    if not norm_type > 0:
        raise ShardingError(f"norm_type: {norm_type}; wanted a number above 0, or infinity")
    group = next((m.xlayout_role.group for m in model.modules() if isinstance(m, WithRole)), None)
    if group is None:
        raise ShardingError(
            "model: no layer of it is on several ranks; torch's own function clips its gradients"
        )
    if any(is_flat(module) for module in model.modules()):
        raise ShardingError(
            "model: FullyShardedDataParallel has put its gradients into flat ones, which do not "
            "tell what several ranks hold; use torch.distributed.fsdp.fully_shard"
        )
    wide = any(p.dtype == torch.float64 for p in model.parameters())
    dtype = torch.float64 if wide else torch.float32
    real = (g.abs() if g.is_complex() else g for g in _own(model, group.rank))
    # An empty one has no largest number, and an error of one rank would leave the others waiting.
    own = [torch.linalg.vector_norm(g.to(dtype), norm_type) for g in real if g.numel()]
    zero = torch.zeros((), dtype=dtype, device=next(model.parameters()).device)
    mine = torch.linalg.vector_norm(torch.stack([zero, *own]), norm_type)
    norm: torch.Tensor = torch.linalg.vector_norm(group.all_gather(mine), norm_type)
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, norm)
    return norm


def _own(model: nn.Module, rank: int) -> Iterator[torch.Tensor]:
    """The gradients that this rank counts; of copies, only the first rank counts them."""
    seen: set[int] = set()
    for module in model.modules():
        counted = module.xlayout_counted if isinstance(module, WithRole) else {}
        for leaf, parameter in module._parameters.items():
            if parameter is None or parameter.grad is None or id(parameter) in seen:
                continue
            seen.add(id(parameter))
            gradient: Any = parameter.grad
            if hasattr(gradient, "full_tensor"):  # sharded by FSDP as well
                gradient = gradient.full_tensor()
            if leaf in counted:
                axis, stretches = counted[leaf]
                for start, length in stretches:
                    yield gradient.narrow(axis, start, length)
            elif rank == 0:
                yield gradient
