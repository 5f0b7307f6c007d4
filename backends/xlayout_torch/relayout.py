"""Relayout: one view of a tensor as fresh memory, in the fewest calls of torch or of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xlayout_native.strided import FEW
from xlayout_torch import cuda, native
from xlayout_torch.memory import grad_enabled

__all__ = ["ROW_MAJOR", "copied", "relayout"]

ROW_MAJOR = torch.contiguous_format


def _clone(x: Any) -> Any:
    return x.clone(memory_format=ROW_MAJOR)


def copied(x: Any) -> Any:
    made = cuda.fresh(x) if x.is_cuda else native.fresh(x)
    return _clone(x) if made is None else made


def relayout(steps: tuple[Any, Any, Any, Any], copies: bool, size: int, /) -> Callable[[Any], Any]:
    # Splitting an axis is a view whatever the strides are, so there is one copy. It is made here:
    # `reshape` and `contiguous` hand out the caller's memory when the permuted strides happen to
    # fit. Of a contiguous tensor they cannot when `copies` holds, and `reshape` is the faster call.
    # (Sizes are spread over the arguments because torch parses them a third faster than a tuple.)
    window, split, axes, merged = steps
    copy = copied if size > FEW else _clone
    if window is not None:
        cut, rest = _cut(window), relayout((None, split, axes, merged), copies, size)
        return lambda x: rest(cut(x))
    if axes is None:
        return copy if split is None else lambda x: _shaped(copy(x), split)
    if merged is None:
        if split is None:
            return lambda x: copy(x.permute(*axes))
        return lambda x: copy(x.view(*split).permute(*axes))
    direct = copies and size <= FEW

    def run(x: Any) -> Any:
        y = (x if split is None else x.view(*split)).permute(*axes)
        if direct and x.is_contiguous():
            return y.reshape(*merged)
        return _shaped(copy(y), merged)

    return run


def _shaped(made: Any, shape: Sequence[int]) -> Any:
    """Fresh memory in its final shape.

    Not as a view while gradients are off: with them on again, torch would refuse writes into it.
    """
    return made.view(shape) if grad_enabled() else torch.ops.aten._unsafe_view(made, shape)


def _cut(window: tuple[slice | int, ...]) -> Callable[[Any], Any]:
    cuts = [(axis, at) for axis, at in enumerate(window) if at != slice(None)]
    axis, at = cuts[0]
    if len(cuts) > 1 or (isinstance(at, slice) and at.step != 1):
        return lambda x: x[window]
    if isinstance(at, int):
        return lambda x: x.select(axis, at)
    start, size = at.start, at.stop - at.start
    return lambda x: x.narrow(axis, start, size)  # a third faster than an index
