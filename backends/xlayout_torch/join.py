"""Join: several tensors as one, where torch would refuse their dtype or forget what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xlayout_torch.kinds import refuse_mixed
from xlayout_torch.memory import transforms

__all__ = ["joined", "joins_as_they_are"]

_autocast = torch._C._is_any_autocast_enabled
_strided = torch.strided


_NEVER_REFUSED = frozenset(
    dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
    and not (dtype.is_floating_point and dtype.itemsize < 4)
    and not str(dtype).startswith("torch.q")
)


def joins_as_they_are(x: Any) -> bool:
    """Whether `torch.cat` and `torch.stack` may be called on tensors of this kind themselves.

    Two more frames, a list and the questions of `joined` are a tenth of a small stack.
    """
    return (
        x.layout is _strided
        and (x.dtype in _NEVER_REFUSED or not (_autocast() or x.is_quantized))
        and not transforms()
    )


# Dynamo does not look for tensors that run code of others in a tuple, only in a list.
joins_as_they_are._torchdynamo_inline = lambda _x: False  # type: ignore[attr-defined]


def joined(join: Callable[..., Any], xs: Sequence[Any], *axis: int) -> Any:
    """`torch.cat` or `torch.stack` of tensors of one kind, which keep their dtype.

    Autocast has both among the ops that promote their inputs, and there refuses every float that is
    narrower than 32 bits and not of its own dtype.

    Raises:
        RuntimeError: for sparse tensors, for several scales, and for DTensors that a transform of
            `torch.func` has wrapped.

    >>> half = torch.ones(2, dtype=torch.float16)
    >>> with torch.autocast("cpu", dtype=torch.bfloat16):
    ...     joined(torch.cat, (half, half), 0).dtype
    torch.float16
    """
    refuse_mixed(xs)
    tensors, dtype = [*xs], xs[0].dtype
    if dtype.is_floating_point and dtype.itemsize < 4 and _autocast():
        device = xs[0].device.type
        if (
            torch.amp.is_autocast_available(device)
            and torch.is_autocast_enabled(device)
            and torch.get_autocast_dtype(device) != dtype
        ):
            with torch.autocast(device, enabled=False):
                return join(tensors, *axis)
    return join(tensors, *axis)
