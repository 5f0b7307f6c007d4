"""Parameters: read and written as a whole, even if sharded by ZeRO-3 or as a DTensor."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from xlayout.errors import SizeError

__all__ = ["gathered", "read", "write"]


def gathered(parameter: Any, *, writes: bool = True) -> AbstractContextManager[Any]:
    """A context in which a parameter that ZeRO-3 has sharded is whole; others always are.

    Under ZeRO-3 this is collective. What rank 0 writes is sent to all ranks at the end.

    >>> import torch
    >>> with gathered(torch.nn.Parameter(torch.ones(2))):
    ...     pass
    """
    if not hasattr(parameter, "ds_id"):  # DeepSpeed's mark on what it has sharded
        return nullcontext()
    from deepspeed.zero import GatheredParameters

    context: AbstractContextManager[Any] = GatheredParameters(
        parameter, modifier_rank=0 if writes else None
    )
    return context


def read(parameter: Any, into: torch.Tensor, name: str) -> None:
    """Copy a parameter to a tensor of its shape; collective if ranks hold parts of it."""
    with gathered(parameter, writes=False):
        _check(parameter, into, name)
        into.copy_(parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter)


def write(parameter: Any, values: torch.Tensor, name: str) -> None:
    """Copy a tensor to a parameter; that of rank 0 if ranks hold parts of the parameter."""
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
