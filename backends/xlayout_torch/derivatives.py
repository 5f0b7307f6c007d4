"""Derivatives: whether one is being taken with respect to a number in a tensor.

`requires_grad` and a tangent tell this for one level. Each of the nested transforms of `torch.func`
wraps the tensor once more, so what is inside is asked too.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack

__all__ = ["asked"]

_functorch = torch._C._functorch
_NONE = -1  # the level of a tensor that no transform has wrapped


def asked(x: Any) -> str | None:
    """Why `x` must not become a plain number: what a derivative needs of it; None if nothing."""
    if torch.compiler.is_dynamo_compiling():  # which follows no transform into its wrappers
        return "requires grad" if x.requires_grad else None
    while True:
        if x.requires_grad:
            return "requires grad"
        if not _is_batch(x) and _has_tangent(x):
            return "has a tangent"
        if not _functorch.is_functorch_wrapped_tensor(x):
            return None
        x = _functorch.get_unwrapped(x)


def _is_batch(x: Any) -> bool:
    """Whether `vmap` has wrapped it: only what is inside can be asked for a tangent."""
    return _functorch.is_batchedtensor(x) or _functorch.is_legacy_batchedtensor(x)


def _has_tangent(x: Any) -> bool:
    """Whether it has one, asked where the transform that gave it is the innermost."""
    with ExitStack() as stack:
        while _innermost() > max(_functorch.maybe_get_level(x), _NONE):
            stack.enter_context(temporarily_pop_interpreter_stack())
        return torch._VF._unpack_dual(x, level=0).tangent is not None


def _innermost() -> int:
    top: Any = _functorch.peek_interpreter_stack()
    return _NONE if top is None else top.level()
