"""CUDA: a layout by the Triton kernel, where it is all that a program does and XLA is slower.

A program that does more is left to XLA, which makes one pass of a layout and what is around it. A
small trial comes before the first use of the kernel, and another before that of each way to move
words; if one fails or comes out wrong, XLA goes on copying. XLAYOUT_TRITON=off does without the
kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax

from xlayout_jax import trial
from xlayout_jax.launches import capability, launched, numbered
from xlayout_jax.programs import gates_of, is_partial, nbytes
from xlayout_triton.plan import Moves, Plan
from xlayout_triton.tile import VECTOR
from xlayout_triton.uncompiled import CompileError, reason_of, say, switched_off
from xlayout_triton.words import VECTORS

__all__ = ["GATES", "SMALL", "called", "is_right", "is_wrong", "status", "tried", "why_not"]

SMALL = 1 << 25
"""Bytes below which any program is done before its host has started the next."""

WORD = 4
"""Bytes of the narrowest elements whose rows XLA moves as fast, if the rows are whole vectors.

It transposes at 0.87 to 1.0 of a copy's speed, the kernel at 0.97 or more.
"""

FEW = 8
"""The most arrays that XLA joins as fast."""

MOST = 128
"""The most arrays whose addresses fit into a kernel's parameters, which take at most 4 KB."""


def _planned(context: Any, moves: Moves) -> Plan | None:
    given = context.avals_in
    return numbered(moves, given[0].dtype.itemsize, len(given), len(context.avals_out))


def _by_xla(context: Any, moves: Moves) -> bool:
    given, made = context.avals_in, _planned(context, moves)
    if made is None or given[0].dtype.itemsize < WORD or len(given) > FEW:
        return False
    tiles = [one.tile for one in made.launches]
    return all(t.sizes[2] == 1 and min(t.vectors) * t.unit == VECTOR for t in tiles)


def _refused(context: Any, moves: Moves) -> bool:
    made = _planned(context, moves)
    return why_not() != "" or any(is_wrong(*kind) for kind in (made.in_words if made else ()))


GATES: dict[str, Callable[[Any, Moves], bool]] = gates_of("cuda") | {
    "small": lambda context, _: nbytes(context.avals_in) < SMALL,
    "many": lambda context, _: len(context.avals_in) + len(context.avals_out) > MOST,
    "partial": is_partial,  # such layouts were never timed on a GPU
    "by XLA": _by_xla,
    "refused": _refused,
}
"""Name -> whether it keeps the kernel out of a program, given JAX's context and the copies."""


def called(
    context: Any, operands: Sequence[Any], orders: Sequence[Sequence[int]], moves: Moves
) -> Sequence[Any] | None:
    """The results by calls of the kernel, or None if a gate is closed; see `native.called`."""
    on_trial = trial.is_one(moves)
    if not on_trial and any(closed(context, moves) for closed in GATES.values()):
        return None
    made = _planned(context, moves)
    if made is None:  # the copies have too many axes
        return None
    try:
        return launched(context, operands, orders, made)
    except CompileError as error:
        if on_trial:
            raise
        say(error, "XLA")
        return None


def status() -> str:
    """One line about the kernel: at work, and where, or why it is not.

    >>> status().startswith("Triton" if jax.default_backend() == "gpu" else "not in use: ")
    True
    """
    reason = why_not()
    if reason:
        return f"not in use: {reason}"
    import triton

    return f"Triton {triton.__version__}, {jax.devices('cuda')[0].device_kind}"


def why_not() -> str:
    """Why the kernel is not to be used, or nothing; the first question is a trial."""
    try:
        return tried()
    except jax.errors.JaxRuntimeError as error:
        return reason_of(error)


@cache
def tried() -> str:
    """The answer of `why_not`, which holds from now on.

    Raises:
        JaxRuntimeError: memory is full, so that the next question is another trial.
    """
    if off := switched_off():
        return off
    if capability() is None:
        return "JAX sees no CUDA device, or several kinds of them"
    try:
        return "" if trial.passes(VECTORS, 4) else "a trial came out wrong"
    except Exception as error:
        if _is_full(error):
            raise
        return reason_of(error)


def is_wrong(way: int, unit: int) -> bool:
    """Whether a way to move elements of so many bytes in words is not to be used; see `why_not`."""
    try:
        return not is_right(way, unit)
    except jax.errors.JaxRuntimeError:
        return True


@cache
def is_right(way: int, unit: int) -> bool:
    """Whether such copies come out right, as `tried` says it of those in vectors."""
    try:
        return trial.passes(way, unit)
    except CompileError:
        return True  # nor will others of its kind compile, and then a line says why
    except Exception as error:
        if _is_full(error):
            raise
        return False


def _is_full(error: Exception) -> bool:
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
