"""The verbs of a backend, in torch.

Its modules, from the bottom up:

    memory                     memory that may be read, shown and written past autograd
    kinds                      dtype and device of a tensor; those that no layout can move
    join                       several tensors as one, which stay what they are
    derivatives                whether one is being taken with respect to a number in a tensor
    native, small              copies by the compiled kernel: large ones, small ones
    launches, trial            copies by the Triton kernel, started; tried before they are relied on
    cuda, batch                when it copies in place of torch; many tensors at once
    relayout                   a copy of one view, by whichever is fastest
    writer                     whole layouts, by either kernel
    operation                  a layout as one operation of torch
    autograd, primitive        that operation, recorded by autograd; recorded by Dynamo
    opaque, record             functions that Dynamo does not trace; that it records as one call
    lent, exchange             memory lent by another framework; exchanged with it
    placement, collective      the placements of DTensors; what exchanges need to know and do
    transport, pairs           elements between ranks; between two each, over gloo
    distributed                DTensors to and from another framework
    wire                       bytes that are received, counted
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from xlayout_native.keys import find_by_shape, keep_by_shape
from xlayout_native.strided import FEW, Moves
from xlayout_torch import cuda, native
from xlayout_torch import derivatives as derivatives
from xlayout_torch import exchange as exchange
from xlayout_torch import record as record
from xlayout_torch.batch import move_many as move_many
from xlayout_torch.cuda import batch_strides as batch_strides
from xlayout_torch.join import joined, joins_as_they_are
from xlayout_torch.kinds import is_sharded as is_sharded
from xlayout_torch.kinds import kind as kind
from xlayout_torch.memory import extent as extent
from xlayout_torch.memory import jit_tracing
from xlayout_torch.memory import refusal as refusal
from xlayout_torch.memory import release as release
from xlayout_torch.memory import strides as strides
from xlayout_torch.memory import view_strides as view_strides
from xlayout_torch.native import empty as empty
from xlayout_torch.native import in_place as in_place
from xlayout_torch.relayout import ROW_MAJOR, copied
from xlayout_torch.relayout import relayout as relayout
from xlayout_torch.small import quick as quick
from xlayout_torch.writer import writer as writer

Runs = dict[Any, Callable[..., Any]]

name = "torch"
immutable = False


def find(
    runs: Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any], /
) -> Callable[..., Any] | None:
    # Dynamo reads this where a frame did not compile: then it compiles what the frame calls.
    return None if _in_dynamo() else find_by_shape(runs, x, args, options)


def keep(
    runs: Runs,
    x: Any,
    args: tuple[Any, ...] | None,
    options: dict[str, Any],
    run: Callable[..., Any],
    /,
) -> None:
    first = x if args is not None else x[0]
    if not first.is_quantized:  # the key does not tell how
        keep_by_shape(runs, x, args, options, run)


_in_dynamo = torch.compiler.is_dynamo_compiling  # looked up once: it is asked on every call


def as_constants(
    arrays: Sequence[Any], args: Sequence[Any], options: dict[str, Any], /
) -> Any | None:
    if not _in_dynamo():
        return None
    from torch.fx.experimental.symbolic_shapes import has_static_value

    # On every call Dynamo checks each class, each function and each tuple that it reads by name.
    def is_constant(value: Any) -> bool:
        kind = type(value).__name__
        if kind == "tuple":
            for part in value:  # noqa: SIM110
                if not is_constant(part):
                    return False
            return True
        if kind in ("int", "float"):
            return has_static_value(value)
        return kind in ("str", "bool", "NoneType")

    seen = []
    for x in arrays:
        of = type(x).__module__, type(x).__name__
        if of not in (("torch", "Tensor"), ("torch.nn.parameter", "Parameter")):
            return None
        if not is_constant((*x.shape, *x.stride())):  # Dynamo could not say whether it is row-major
            return None
        seen.append(((*x.shape,), x.dtype, x.device, x.is_contiguous()))
    given = *args, *options.values()
    return ("torch", (*seen,), args, (*options.items(),)) if is_constant(given) else None


def linear_pays(form: str, seen: Sequence[Any], /) -> bool:
    from xlayout_torch import primitive

    return primitive.linear_pays(form, seen)


def tracing(*xs: Any) -> bool:
    if torch.compiler.is_compiling() or jit_tracing():
        return True
    for x in xs:  # noqa: SIM110 -- a generator costs as much as the call it would decide
        if x._has_symbolic_sizes_strides:
            return True
    return False


def symbolic(n: Any, /) -> bool:
    if type(n) is not int:
        return True
    if not _in_dynamo():
        return False
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return not has_static_value(n)


def concrete(n: Any, /) -> int:
    return operator.index(n)  # int() would keep a dynamic size dynamic


def reshape(x: Any, shape: Sequence[Any], /) -> Any:
    return x.reshape(shape)


def permute(x: Any, axes: Sequence[int], /) -> Any:
    return x.permute(axes)


def slice(x: Any, axis: int, start: Any, stop: Any, step: int, /) -> Any:  # noqa: A001 -- the verb's name
    if step == 1:
        return x.narrow(axis, start, stop - start)
    stepped = builtins.slice(start, stop, step)
    return x[(*[builtins.slice(None)] * axis, stepped)]


def concatenate(xs: Sequence[Any], axis: int, /) -> Any:
    as_they_are = joins_as_they_are(xs[0])
    made = torch.cat(tuple(xs), axis) if as_they_are else joined(torch.cat, xs, axis)
    return _row_major(made)  # `cat` keeps a common channels-last order


def stack(axis: int, rank: int, /) -> Callable[..., Any]:
    def first(*xs: Any) -> Any:
        # To name the axis costs 0.3 us.
        return torch.stack(xs) if joins_as_they_are(xs[0]) else joined(torch.stack, xs)

    def at(*xs: Any) -> Any:
        as_they_are = joins_as_they_are(xs[0])
        made = torch.stack(xs, axis) if as_they_are else joined(torch.stack, xs, axis)
        return _row_major(made) if rank > 4 else made  # as in `concatenate`: images, volumes

    return at if axis or rank > 4 else first


def pad(x: Any, axis: int, before: int, after: int, value: Any, /) -> Any:
    padded = torch.constant_pad_nd(x, [0, 0] * (x.ndim - 1 - axis) + [before, after], value)
    return _row_major(padded)  # `constant_pad_nd` keeps a channels-last order


def _row_major(x: Any) -> Any:
    # `contiguous` may return `x` itself, and an autograd.Function that torch 2.11 compiles then has
    # the same tensor twice among its outputs, so that its gradient is silently zero.
    return x if x.is_contiguous() else x.contiguous()


def expand(x: Any, shape: Sequence[Any], /) -> Any:
    return x.expand(shape)


def full(shape: Sequence[Any], value: Any, like: Any, /) -> Any:
    return like.new_full(tuple(shape), value)


def gather(xs: Sequence[Any], table: Any, value: Any, /) -> Any:
    flat = joined(torch.cat, [x.reshape((x.numel(),)) for x in xs])
    where = torch.as_tensor(table, device=flat.device)
    return torch.where(where < 0, flat.new_full((), value), flat[where.clamp(min=0)])


def fresh(x: Any, /) -> Any:
    # The first is enough for Dynamo, which guards on every call each function that it reads here.
    if _in_dynamo() or torch.compiler.is_compiling() or x.numel() <= FEW:
        return x.clone(memory_format=ROW_MAJOR)
    return copied(x)


def compiled(
    _function: Callable[..., Any],
    _elsewhere: Callable[..., Any] | None,
    _arrays: Sequence[Any],
    /,
) -> Callable[..., Any] | None:
    return None


def linear(make: Callable[[], Any], arrays: Sequence[Any], /) -> Sequence[Any] | None:
    if _in_dynamo():
        from xlayout_torch import primitive  # which brings Dynamo

        return primitive.linear(make(), arrays)
    if not any(x.requires_grad for x in arrays):
        return None
    from xlayout_torch import autograd  # not every program differentiates

    return autograd.linear(make, arrays)


def view(x: Any, offset: int, strides: Sequence[int], shape: Sequence[int], /) -> Any | None:
    if any(step < 0 for step in strides):  # torch has no negative strides
        return None
    return x.as_strided(shape, strides, x.storage_offset() + offset)


def assign(to: Any, source: Any, /) -> None:
    if isinstance(source, torch.Tensor):
        to.copy_(source)
    else:
        to.fill_(source)


def move(moves: Moves, arrays: Sequence[Any], outputs: Sequence[Any], /) -> bool:
    if outputs and outputs[0].is_cuda:
        return cuda.move(moves, arrays, outputs)
    return native.move(moves, arrays, outputs)


def concatenates_well(xs: Sequence[Any], axis: int, /) -> bool:
    return bool(xs[0].is_cuda) and cuda.concatenates_well(xs, axis)
