"""Join: several tensors as one, where Dynamo would forget that they are of a subclass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xlayout_torch.kinds import refuse_mixed

__all__ = ["joined", "joins_as_they_are"]

_strided = torch.strided


def joins_as_they_are(x: Any) -> bool:
    """Whether `torch.cat` and `torch.stack` may be called on tensors of this kind themselves.

    Two more frames, a list and the question of `joined` are a tenth of a small stack.
    """
    return x.layout is _strided and not x.is_quantized


# Dynamo does not look for tensors that run code of others in a tuple, only in a list.
joins_as_they_are._torchdynamo_inline = lambda _x: False  # type: ignore[attr-defined]


def joined(join: Callable[..., Any], xs: Sequence[Any], *axis: int) -> Any:
    """`torch.cat` or `torch.stack` of tensors of one kind.

    Raises:
        RuntimeError: for sparse tensors, and for several scales.

    >>> x = torch.ones(2)
    >>> joined(torch.stack, (x, x)).shape
    torch.Size([2, 2])
    """
    refuse_mixed(xs)
    return join([*xs], *axis)
