"""Native: the primitive of a layout by the copy kernel, as a call of XLA for CPU where that pays.

If one of the gates here is closed, XLA's plain ops stay. Some are asked about the arrays while a
function is traced; the others, when it is lowered, about the computation that they are a part of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np

import xlayout_native
from xlayout_jax.primitive import Linear, common_kind, is_alone, relayout_p
from xlayout_jax.programs import gates_of, is_partial, nbytes, on
from xlayout_jax.tracers import is_in_kernel
from xlayout_native.strided import LINE, Loops, Moves, are_many, keeps_order, run_of

__all__ = ["DTYPES", "LARGE", "LOWERED", "SMALL", "TARGET", "TRACED", "called", "linear"]

SMALL = 1 << 17
"""Bytes from which a call is faster than XLA's ops, with neighbours to fuse and without."""

LARGE = 1 << 25
"""The same where whole rows move. Memory of that size comes anew from the system each time, page by
page, which is why huge pages pay."""

TARGET = "xlayout_copy"

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "bfloat16", "complex64", "complex128",
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
"""Names of those whose elements are whole bytes, as the call knows them."""

_handler = xlayout_native.ffi_handler() if xlayout_native.available else None

TRACED: dict[str, Callable[[Sequence[Any]], bool]] = {
    "off": lambda _: not on(),
    "packed": lambda xs: xs[0].dtype.name not in DTYPES,  # or no bytes at all: keys
    "small": lambda xs: nbytes(xs) < SMALL,
    "in a kernel": lambda xs: any(map(is_in_kernel, xs)),  # whose compilers know plain ops alone
    "sharded by type": lambda xs: common_kind(xs) is None,
}
"""Name -> whether it keeps the primitive away from some arrays; asked in this order."""


def linear(make: Callable[[], Linear | None], arrays: Sequence[Any], /) -> list[Any] | None:
    if any(closed(arrays) for closed in TRACED.values()):
        return None
    found = make()
    if found is None:
        return None
    told = {"alone": True} if is_alone() else {}
    made: list[Any] = relayout_p.bind(*arrays, linear=found, **told)
    return made


def _by_rows(context: Any, moves: Moves) -> bool:
    # XLA loops over the result's last axis. Where that is a row of the operand, it copies rows, in
    # one pass with its neighbours; where it is in pieces, it works out each element's address. Of
    # rows that are cut short, or padded, it copies short ones as fast.
    given, made = context.avals_in, context.avals_out
    width = given[0].dtype.itemsize
    rows = [next((n for n in aval.shape[::-1] if n > 1), 1) for aval in made]
    moved = [move for move in moves if move[0] < len(given)]
    partial = is_partial(context, moves)

    def is_fast(target: int, to: int, loops: Loops) -> bool:
        row, run = rows[target], run_of(loops)
        if row * width >= LINE and to % row == run % row == 0:
            return True
        return partial and run * width < LINE and keeps_order(loops)

    return nbytes(made) < LARGE and all(
        is_fast(target, to, loops) for _, target, (_, to, loops) in moved
    )


@cache
def _refused() -> bool:
    # Not before there is a client: JAX would keep it for later, and then do without any client.
    if _handler is None:
        return True
    try:
        jax.ffi.register_ffi_target(TARGET, _handler, platform="cpu")
    except Exception:  # noqa: BLE001 -- XLA and the headers of other versions; it has no error class
        return True
    return False


LOWERED: dict[str, Callable[[Any, Moves], bool]] = gates_of("cpu") | {
    "by rows": _by_rows,
    "many": lambda _context, moves: are_many(moves),
    "refused": lambda _context, _moves: _refused(),
}
"""Name -> whether it keeps the call out of a computation, given JAX's context and the copies."""


def called(
    context: Any, operands: Sequence[Any], orders: Sequence[Sequence[int]], moves: Moves
) -> Sequence[Any] | None:
    """The results by a call of the kernel, or None where one of the gates is closed.

    Args:
        context: JAX's, with what is known of operands and results.
        operands: what is read.
        orders: the axes of each operand, fastest first.
        moves: the copies.
    """
    if any(closed(context, moves) for closed in LOWERED.values()):
        return None
    call = jax.ffi.ffi_lowering(TARGET, operand_layouts=orders)
    results: Sequence[Any] = call(context, *operands, moves=_numbers(moves))
    return results


def _numbers(moves: Moves) -> np.ndarray:
    """The moves as the call takes them: input, output, from, to, how many loops, the loops."""
    numbers: list[int] = []
    for source, target, (start, to, loops) in moves:
        numbers += [source, target, start, to, len(loops)]
        for loop in loops:
            numbers += loop
    return np.array(numbers, np.int64)
