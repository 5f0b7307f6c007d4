"""Small: a small layout in one call of the compiled kernel, where torch would take three.

On a kilobyte the cost is in the calls: view, permute and reshape go through torch's dispatcher
three times, the kernel not once. The gates are those of large copies, asked in fewer words: what is
wrapped (by functionalization, lazy zeros, a sparse format) has no address to give; quantized
dtypes, and complex ones, which may be conjugated lazily, have no plan; modes, transforms and
tracers are asked for once a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

import xlayout_native
from xlayout_native.strided import Moves, Plans
from xlayout_native.switch import wanted
from xlayout_torch.kinds import refuse_any_hidden
from xlayout_torch.memory import (
    OFFSETS,
    PLAIN,
    WIDTHS,
    addresses_of,
    begins_nowhere,
    dispatch_modes,
    function_modes,
    grad_enabled,
    jit_tracing,
    made_as,
    transforms,
    under_function_mode,
    watched,
)

__all__ = ["quick"]


def quick(
    plain: Callable[..., Any],
    moves: Moves | None,
    inputs: int,
    shapes: Sequence[tuple[int, ...]],
    /,
) -> Callable[..., Any]:
    recipe = _on_its_own(plain)
    if moves is None:
        return recipe
    plans = Plans(moves, inputs, shapes, WIDTHS.get)
    shape, whole = shapes[0], plans.whole
    alone = len(shapes) == 1 and shape  # see `one`
    if not plans.widest or not (whole or alone):
        return recipe
    copy, offsets = xlayout_native.run, OFFSETS
    sizes = made_as(shapes)

    def one(x: Any) -> Any:
        plan = plans[x.dtype]
        if plan is None:
            return recipe(x)
        # What `watched` and `addresses_of` ask, in one frame: to call them is a fifteenth of all.
        try:
            closed = (
                forward_ad._current_level >= 0
                or transforms()
                or dispatch_modes()
                or (function_modes() and under_function_mode())
                or jit_tracing()
                or not wanted()
                or type(x) not in PLAIN
                or not x.is_cpu
                or not x.is_contiguous()
                or x.is_neg()
                or (x.requires_grad and grad_enabled())
            )
            address = 0 if closed else x.data_ptr()
        except RuntimeError:  # it has no memory of its own
            address = 0
        if address < offsets and (not address or begins_nowhere(x)):
            return recipe(x)
        # A tenth faster than `new_empty`; without a shape `new` makes no scalar.
        y = x.new(*shape) if whole else x.new_zeros(*shape)
        copy(plan, 1, address, y.data_ptr())
        return y

    def several(*arrays: Any) -> Any:
        plan = plans[arrays[0].dtype]
        if plan is None or watched() or not wanted():
            return recipe(*arrays)
        addresses = addresses_of(arrays)
        if addresses is None:
            return recipe(*arrays)
        if alone:
            y = arrays[0].new(*shape) if whole else arrays[0].new_zeros(*shape)
            copy(plan, 1, *addresses, y.data_ptr())
            return y
        new = arrays[0].new_empty_strided  # sooner than from a tuple alone
        made = [new(*size) for size in sizes]
        copy(plan, 1, *addresses, *[y.data_ptr() for y in made])
        return tuple(made) if len(made) > 1 else made[0]

    return one if inputs == 1 and alone else several


def _on_its_own(recipe: Callable[..., Any]) -> Callable[..., Any]:
    """A recipe whose results are never views, not even of memory that is theirs alone.

    If a view is made with gradients off, as in an autograd.Function, torch refuses writes into it
    with gradients on.
    """

    def run(*arrays: Any) -> Any:
        if transforms():
            refuse_any_hidden(arrays)
        made = recipe(*arrays)
        if grad_enabled():
            return made
        return tuple(map(_no_view, made)) if type(made) is tuple else _no_view(made)

    return run


def _no_view(y: Any) -> Any:
    return torch.ops.aten._unsafe_view(y, y.shape) if y._is_view() else y
