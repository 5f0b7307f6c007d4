"""Parameters: read and written whole, though ZeRO-3 or a DTensor may hold them in parts."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from xlayout.errors import SizeError

__all__ = ["gathered", "read", "write"]


def gathered(parameter: Any, *, writes: bool = True) -> AbstractContextManager[Any]:
    """A context in which a parameter that ZeRO-3 cut up is whole; any other parameter is anyway.

    Under ZeRO-3 this is collective. What rank 0 has written is sent to all ranks at the end.

    >>> import torch
    >>> with gathered(torch.nn.Parameter(torch.ones(2))):
    ...     pass
    """
    if not hasattr(parameter, "ds_id"):  # by which DeepSpeed knows what it has cut
        return nullcontext()
    from deepspeed.zero import GatheredParameters

    context: AbstractContextManager[Any] = GatheredParameters(
        parameter, modifier_rank=0 if writes else None
    )
    return context


def read(parameter: Any, into: torch.Tensor, name: str) -> None:
    """Copy a parameter to a tensor of its shape; collective where ranks hold parts of it."""
    with gathered(parameter, writes=False):
        _check(parameter, into, name)
        spread = hasattr(parameter, "full_tensor")
        into.copy_(parameter.full_tensor() if spread else parameter)


def write(parameter: Any, values: torch.Tensor, name: str) -> None:
    """Copy a tensor to a parameter; that of rank 0 where ranks hold parts of the parameter."""
    with gathered(parameter):
        _check(parameter, values, name)
        if hasattr(parameter, "full_tensor"):
            from torch.distributed.tensor import distribute_tensor

            values = values.detach().to(parameter.device)
            values = distribute_tensor(values, parameter.device_mesh, parameter.placements)
        parameter.copy_(values)


def _check(parameter: Any, whole: torch.Tensor, name: str) -> None:
    if parameter.shape != whole.shape:
        shapes = f"shape {tuple(parameter.shape)}; wanted {tuple(whole.shape)}"
        raise SizeError(f"{name}: {shapes}")
