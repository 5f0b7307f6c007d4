"""Primitive: a layout that only moves elements, as one operation in programs of `torch.compile`.

Inductor loops over the elements of every result and works out an address for each, into memory that
it touches page by page. From some size on Dynamo records this operation instead, which the copy
kernel runs. If one of the gates here is closed, plain ops stay.

This is imported only where Dynamo is at work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.symbolic_shapes import has_static_value

import xlayout_native
from xlayout_native.strided import LINE, are_many
from xlayout_native.switch import wanted
from xlayout_torch.memory import PLAIN, WIDTHS
from xlayout_torch.operation import Form, parse

__all__ = ["FROM", "GATES", "LARGE", "linear", "linear_pays"]

FROM = {
    "weave": (2, 2, 2, 4),
    "deal": (16, 2, 8, 16),
    "apart": (1, 2, 4, 16),
    "turn": (2, 4, 16, 8),
}
"""Megabytes from which the operation is faster than Inductor's loops, by the kind of layout, if 1,
2, 4, and 8 bytes or more stay side by side. Those loops take vectors or single elements, depending
on the dtype and on which elements stay near. A call of the operation takes 40 us by itself, if
other calls have gone through the caches.
"""

LARGE = 1 << 25
"""The same where whole lines move: Inductor copies those well, in one pass with its neighbours."""


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
    "dtype": lambda _form, seen: seen.dtype not in WIDTHS,
    "subclass": lambda _form, seen: not seen.plain,  # it may know only ATen's ops
    "strided": lambda _form, seen: not seen.row_major,
    "exported": lambda _form, _seen: torch.compiler.is_exporting(),  # others may read the program
    "transform": lambda _form, _seen: torch._C._functorch.peek_interpreter_stack() is not None,
    "small": lambda form, seen: form.size * seen.dtype.itemsize < _least(form, seen.dtype.itemsize),
    "by lines": lambda form, seen: (
        form.run * seen.dtype.itemsize >= LINE and form.size * seen.dtype.itemsize < LARGE
    ),
    "in order": lambda form, seen: (
        form.keeps_order and form.size * seen.dtype.itemsize < LARGE  # it copies those well too
    ),
    "many": lambda form, _seen: are_many(form.moves),
}
"""Name -> whether it keeps the operation away from a layout of such tensors, here and now."""


def _least(form: Form, itemsize: int) -> int:
    """Bytes below which Inductor's loops are faster."""
    width = min(form.run * itemsize, 8)
    return FROM[form.kind][width.bit_length() - 1] << 20


def linear(form: str | None, arrays: Sequence[Any]) -> Sequence[Any] | None:
    if form is None:
        return None
    # Dynamo guards whatever Python it reads, on every call: so there is little here.
    first, plain, row_major = arrays[0], True, True
    for x in arrays:
        plain = plain and type(x) in PLAIN
        row_major = row_major and _is_row_major(x)
    seen = first.dtype, first.device.type, plain, row_major
    outputs = _outputs(form, *seen)
    if not outputs:
        return None
    if outputs == 1:
        return [torch.ops.xlayout.relayout.one(list(arrays), form)]
    made: Sequence[Any] = torch.ops.xlayout.relayout(list(arrays), form)
    return made


def linear_pays(form: str, seen: Sequence[Any]) -> bool:
    """Whether no gate keeps the operation away from arrays of this description."""
    _, dtype, device, _ = seen[0]
    row_major = all(x[3] for x in seen)
    return bool(_outputs(form, dtype, device.type, True, row_major))


def _is_row_major(x: Any) -> bool:
    """Whether a tensor is contiguous for certain: none is whose sizes or strides are open."""
    return all(has_static_value(n) for n in (*x.shape, *x.stride())) and x.is_contiguous()


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _outputs(text: str, *seen: Any) -> int:
    """How many results the operation has; 0 where a gate keeps it away."""
    form = parse(text)
    return 0 if any(closed(form, Seen(*seen)) for closed in GATES.values()) else len(form.targets)
