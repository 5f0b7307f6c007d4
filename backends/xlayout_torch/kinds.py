"""Kinds: dtype and device of the tensors that a layout can move; what it cannot move is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xlayout_torch.memory import strided

__all__ = ["is_sharded", "kind", "refuse_any_hidden", "refuse_hidden", "refuse_mixed"]

_functorch = torch._C._functorch


def kind(x: Any, /) -> tuple[Any, Any]:
    """The verb of this name; its errors call the tensor `x`."""
    if not isinstance(x, torch.Tensor):
        more = ", as x.weight" if isinstance(x, torch.nn.Module) else ""
        raise TypeError(f"x: {type(x).__qualname__}; wanted a torch.Tensor{more}")
    if x.is_nested:
        raise TypeError("x: a nested tensor; wanted one array, as x.to_padded_tensor(0)")
    if not strided(x):
        raise TypeError(f"x: a tensor of layout {x.layout}; wanted a strided one, as x.to_dense()")
    if not torch.compiler.is_dynamo_compiling():  # which takes no wrapper apart
        refuse_hidden(x)
    return x.dtype, _scaled(x) if x.is_quantized else x.device


def _scaled(x: Any) -> str:
    """The device of a quantized tensor, and its scale, which must be the same for a whole call."""
    if x.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return f"{x.device} with scale {x.q_scale()} and zero point {x.q_zero_point()}"
    raise TypeError(
        "x: a tensor with a scale for each channel, which would stay where it is; wanted one scale "
        "for all, or x.int_repr() and the scales apart"
    )


def is_sharded(x: Any, /) -> bool:
    # By name: a program without DTensors never imports their package.
    return type(x).__name__ == "DTensor" and type(x).__module__.startswith("torch.distributed")


def refuse_hidden(x: Any) -> None:
    """Refuse a DTensor that `torch.func` has wrapped: as a plain tensor, which has no mesh."""
    if _is_hidden(x):
        raise TypeError(
            "x: a DTensor inside a transform of torch.func, which no exchange sees through; use "
            "torch.autograd.grad"
        )


def refuse_any_hidden(xs: Sequence[Any]) -> None:
    """The same for several, where the caller says which."""
    if any(map(_is_hidden, xs)):
        raise RuntimeError("arrays: a DTensor inside a transform of torch.func")


refuse_any_hidden._torchdynamo_inline = lambda _xs: None  # type: ignore[attr-defined]


def _is_hidden(x: Any) -> bool:
    if not _functorch.is_functorch_wrapped_tensor(x):
        return False
    inside = _functorch.get_unwrapped(x)
    return is_sharded(inside) or _is_hidden(inside)


def refuse_mixed(xs: Sequence[Any]) -> None:
    """Refuse sparse tensors and several scales, which `torch.cat` would take in its own way."""
    refuse_any_hidden(xs)
    first = xs[0]
    if strided(first) and not first.is_quantized:
        return
    if not all(map(strided, xs)) or len({kind(x) for x in xs}) > 1:
        raise RuntimeError("arrays: sparse or of several kinds")  # the caller says which
