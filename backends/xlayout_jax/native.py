"""Native: the primitive of a layout by the copy kernel, as a call of XLA for CPU where that pays.

Each gate here keeps the call away, and XLA's plain ops stay. While a function is traced the arrays
close it; when it is lowered, the computation that they turned out to be a part of.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

import xlayout_native
from xlayout_jax.primitive import Linear, common_kind, lower_plain, relayout_p
from xlayout_native.strided import LINE, Moves, are_many, dense_strides, run_of
from xlayout_native.switch import WATCHERS, wanted

__all__ = ["DTYPES", "LARGE", "LOWERED", "SMALL", "TARGET", "TRACED", "linear"]

SMALL = 1 << 17
"""Bytes from which a call is faster than XLA's ops, with neighbours to fuse and without."""

LARGE = 1 << 25
"""The same where whole rows move. The system gives so much memory anew each time, page by page, so
that it is huge pages that pay."""

TARGET = "xlayout_copy"

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "bfloat16", "complex64", "complex128",
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
"""Names of those whose elements are whole bytes, as the call knows them."""

_handler = xlayout_native.ffi_handler() if xlayout_native.available else None

_make_context: Any = jax.make_user_context  # ships no type
_switch = _make_context(True)  # part of what jit remembers its results by
WATCHERS.append(_switch)


def _on() -> bool:
    return bool(_switch.value) and wanted()


def _bytes(arrays: Sequence[Any]) -> int:
    return int(sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays))


TRACED: dict[str, Callable[[Sequence[Any]], bool]] = {
    "absent": lambda _: _handler is None,
    "off": lambda _: not _on(),
    "packed": lambda xs: xs[0].dtype.name not in DTYPES,  # or no bytes at all: keys
    "small": lambda xs: _bytes(xs) < SMALL,
    "sharded by type": lambda xs: common_kind(xs) is None,
}
"""Name -> whether it keeps the primitive away from some arrays; asked in this order."""


def linear(make: Callable[[], Linear | None], arrays: Sequence[Any], /) -> list[Any] | None:
    if any(closed(arrays) for closed in TRACED.values()):
        return None
    found = make()
    return None if found is None else relayout_p.bind(*arrays, linear=found)


def _spread(context: Any) -> bool:
    # XLA cannot split a call: it would gather whole arrays before it. In shard_map it need not.
    where = context.module_context.axis_context
    if hasattr(where, "manual_axes"):
        return bool(where.manual_axes != frozenset(where.mesh.axis_names))
    return bool(getattr(where, "num_devices", 0) != 1)


def _by_rows(context: Any, moves: Moves) -> bool:
    # XLA loops over the result's last axis. Where that is a row of the operand, it copies rows, in
    # one pass with its neighbours; where it is in pieces, it works out each element's address.
    width = context.avals_in[0].dtype.itemsize
    rows = [next((n for n in aval.shape[::-1] if n > 1), 1) for aval in context.avals_out]
    whole = all(
        rows[target] * width >= LINE and to % rows[target] == run_of(loops) % rows[target] == 0
        for _, target, (_, to, loops) in moves
    )
    return whole and _bytes(context.avals_in) < LARGE


@cache
def _refused() -> bool:
    # Not before there is a client: JAX would keep it for later, and then do without any client.
    try:
        jax.ffi.register_ffi_target(TARGET, _handler, platform="cpu")
    except Exception:  # noqa: BLE001 -- an XLA of another time than the headers; no error of its own
        return True
    return False


LOWERED: dict[str, Callable[[Any, Moves], bool]] = {
    "off": lambda _context, _moves: not _on(),
    "elsewhere": lambda context, _: tuple(context.module_context.platforms) != ("cpu",),
    "exported": lambda context, _: context.module_context.lowering_parameters.for_export,
    "spread": lambda context, _: _spread(context),
    "by rows": _by_rows,
    "many": lambda _context, moves: are_many(moves),
    "refused": lambda _context, _moves: _refused(),
}
"""Name -> whether it keeps the call out of a computation, given JAX's context and the copies."""


def _lower(context: Any, *operands: Any, linear: Linear) -> Any:
    avals = context.avals_in
    orders = [_order(x, aval.ndim) for x, aval in zip(operands, avals, strict=True)]
    pairs = zip(avals, orders, strict=True)
    moves = linear.moves([dense_strides(aval.shape, order[::-1]) for aval, order in pairs])
    if any(closed(context, moves) for closed in LOWERED.values()):
        return lower_plain(context, *operands, linear=linear)
    call = jax.ffi.ffi_lowering(TARGET, operand_layouts=orders)
    return call(context, *operands, moves=_numbers(moves))


def _order(operand: Any, ndim: int) -> tuple[int, ...]:
    """The axes, fastest first, of an argument that the caller laid out; else row-major."""
    attributes = ""
    if isinstance(operand, mlir.ir.BlockArgument):
        function: Any = operand.owner.owner.attributes
        if "arg_attrs" in function:
            attributes = str(function["arg_attrs"][operand.arg_number])
    found = re.search(r'layout_mode = "\{(\d+(?:,\d+)*)\}"', attributes)
    return tuple(map(int, found[1].split(","))) if found else tuple(reversed(range(ndim)))


def _numbers(moves: Moves) -> np.ndarray:
    """The moves as the call takes them: input, output, from, to, how many loops, the loops."""
    numbers: list[int] = []
    for source, target, (start, to, loops) in moves:
        numbers += [source, target, start, to, len(loops)]
        for loop in loops:
            numbers += loop
    return np.array(numbers, np.int64)


# Not to be remembered for the next of its kind: that one may have operands laid out otherwise.
mlir.register_lowering(relayout_p, _lower, cacheable=False)
