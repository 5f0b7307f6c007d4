"""Primitive: a layout that only moves elements, as one operation in programs of `torch.compile`.

Inductor loops over the elements of every result and works out an address for each, into memory that
it touches page by page. From some size on Dynamo records this operation instead, which the copy
kernel runs. It is linear and takes every element along, so backward it is its own inverse.

Each gate here keeps it away, and plain ops stay. It is imported where Dynamo is at work.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

import xlayout_native
from xlayout_native.strided import LINE, Moves, are_many, run_of
from xlayout_native.switch import wanted
from xlayout_torch.memory import PLAIN
from xlayout_torch.small import DTYPES
from xlayout_torch.writer import copy_by_torch, writer

__all__ = ["GATES", "LARGE", "SMALL", "linear"]

SMALL = 1 << 21
"""Bytes from which the operation is faster than Inductor's loops; a call takes 20 us by itself."""

LARGE = 1 << 25
"""The same where whole lines move: Inductor copies those well, in one pass with its neighbours."""

_Shapes = tuple[tuple[int, ...], ...]


class Form(NamedTuple):
    """A bijection between row-major tensors, in numbers."""

    moves: Moves
    sources: _Shapes
    targets: _Shapes

    @property
    def size(self) -> int:
        """How many elements it moves."""
        return sum(map(math.prod, self.targets))

    @property
    def run(self) -> int:
        """How many elements stay side by side wherever they go."""
        return min((run_of(loops) for _, _, (_, _, loops) in self.moves), default=0)

    def inverse(self) -> Form:
        """The way back."""
        back = tuple(
            (target, source, (to, start, tuple((n, z, x) for n, x, z in loops)))
            for source, target, (start, to, loops) in self.moves
        )
        return Form(back, self.targets, self.sources)


class Seen(NamedTuple):
    """What Dynamo shows of the tensors that a layout is given."""

    dtype: torch.dtype
    device: str
    plain: bool
    row_major: bool


GATES: dict[str, Callable[[Form, Seen], bool]] = {
    "absent": lambda _form, _seen: not xlayout_native.available,
    "off": lambda _form, _seen: not wanted(),
    "device": lambda _form, seen: seen.device != "cpu",
    "dtype": lambda _form, seen: seen.dtype not in DTYPES,
    "subclass": lambda _form, seen: not seen.plain,  # it may know ATen's ops alone
    "strided": lambda _form, seen: not seen.row_major,
    "exported": lambda _form, _seen: torch.compiler.is_exporting(),  # others may read the program
    "transform": lambda _form, _seen: torch._C._functorch.peek_interpreter_stack() is not None,
    "forward mode": lambda _form, _seen: forward_ad._current_level >= 0,
    "small": lambda form, seen: form.size * seen.dtype.itemsize < SMALL,
    "by lines": lambda form, seen: (
        form.run * seen.dtype.itemsize >= LINE and form.size * seen.dtype.itemsize < LARGE
    ),
    "many": lambda form, _seen: are_many(form.moves),
}
"""Name -> whether it keeps the operation away from a layout of such tensors, here and now."""


def linear(form: str | None, arrays: Sequence[Any]) -> Sequence[Any] | None:
    if form is None:
        return None
    # Dynamo guards whatever Python it reads, on every call: so there is little here.
    first, plain, row_major = arrays[0], True, True
    for x in arrays:
        plain = plain and type(x) in PLAIN
        row_major = row_major and x.is_contiguous()
    seen = first.dtype, first.device.type, plain, row_major
    outputs = _outputs(form, *seen)
    if not outputs:
        return None
    if outputs == 1:
        return [torch.ops.xlayout.relayout.one(list(arrays), form)]
    made: Sequence[Any] = torch.ops.xlayout.relayout(list(arrays), form)
    return made


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _outputs(text: str, *seen: Any) -> int:
    """How many results the operation has; 0 where a gate keeps it away."""
    form = _form(text)
    return 0 if any(closed(form, Seen(*seen)) for closed in GATES.values()) else len(form.targets)


@lru_cache(1024)
def _form(text: str) -> Form:
    return Form(*ast.literal_eval(text))


@lru_cache(1024)
def _writer(text: str) -> Callable[..., Any]:
    form = _form(text)
    return writer(form.moves, len(form.sources), form.targets)


def _run(arrays: Sequence[torch.Tensor], form: str) -> list[torch.Tensor]:
    given = [x.contiguous() for x in arrays]
    made = _writer(form)(given, None)
    if made is None:
        made = _empty(given, form)
        copy_by_torch(_form(form).moves, given, made)
    return list(made)


def _empty(arrays: Sequence[torch.Tensor], form: str) -> list[torch.Tensor]:
    return [arrays[0].new_empty(shape) for shape in _form(form).targets]


def _back(form: str, cotangents: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    back = _form(form).inverse()
    text = repr(tuple(back))
    if len(back.targets) == 1:
        return [torch.ops.xlayout.relayout.one(cotangents, text)]
    return list(torch.ops.xlayout.relayout(cotangents, text))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.form = inputs[1]


def _define(
    name: str, result: str, chosen: Callable[[Any], Any], listed: Callable[[Any], Any]
) -> None:
    """An operation of tensors that are row-major, or are made so first; its results are.

    What a program carries along is text: it may be kept, and run by a process that never saw the
    layout. `custom_op` would say the same, and take 15 us more of each call.

    Args:
        name: of the operation.
        result: its type.
        chosen: list of tensors -> result.
        listed: result -> list of tensors.
    """
    schema, tag = f"(Tensor[] arrays, str form) -> {result}", torch.Tag.pt2_compliant_tag
    torch.library.define(name, schema, tags=[tag])
    torch.library.impl(name, "cpu", lambda arrays, form: chosen(_run(arrays, form)))
    torch.library.register_fake(name, lambda arrays, form: chosen(_empty(arrays, form)))
    torch.library.register_autograd(
        name, lambda ctx, given: (_back(ctx.form, listed(given)), None), setup_context=_keep
    )


_define("xlayout::relayout", "Tensor[]", list, list)
# Inductor's C++ wrapper crashes on a list of one.
_define("xlayout::relayout.one", "Tensor", lambda made: made[0], lambda made: [made])
