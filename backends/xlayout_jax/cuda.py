"""CUDA: a layout by the Triton kernel, where it is all that a program does and XLA is slower.

A program that does more is left to XLA, which makes one pass of a layout and what is around it. The
first use of the kernel is a small trial; if that fails or comes out wrong, XLA goes on copying.
XLAYOUT_TRITON=off does without the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np

from xlayout_jax.launches import capability, launched, numbered
from xlayout_jax.primitive import relayout_p
from xlayout_jax.programs import nbytes, on, spread
from xlayout_triton.plan import Moves, Plan
from xlayout_triton.tile import VECTOR
from xlayout_triton.uncompiled import CompileError, reason_of, say

__all__ = ["GATES", "SMALL", "called", "status", "why_not"]

SMALL = 1 << 25
"""Bytes below which any program is done before its host has started the next."""

WORD = 4
"""Bytes of the narrowest element of which XLA moves rows as fast, if they are whole vectors.

What turns rows into columns it moves at 0.87 to 1.0 of a copy's speed, the kernel at 0.97 or more.
"""

FEW = 8
"""Arrays that it joins as fast."""

MOST = 128
"""Arrays whose addresses have room among a kernel's parameters, of which there are 4 KB."""


def _planned(context: Any, moves: Moves) -> Plan | None:
    given = context.avals_in
    return numbered(moves, given[0].dtype.itemsize, len(given), len(context.avals_out))


def _by_xla(context: Any, moves: Moves) -> bool:
    given, made = context.avals_in, _planned(context, moves)
    if made is None or given[0].dtype.itemsize < WORD or len(given) > FEW:
        return False
    tiles = [one.tile for one in made.launches]
    return all(t.sizes[2] == 1 and min(t.vectors) * t.unit == VECTOR for t in tiles)


def _refused(_context: Any, _moves: Moves) -> bool:
    return why_not() != ""


GATES: dict[str, Callable[[Any, Moves], bool]] = {
    "off": lambda _context, _moves: not on(),
    "elsewhere": lambda context, _: tuple(context.module_context.platforms) != ("cuda",),
    "exported": lambda context, _: context.module_context.lowering_parameters.for_export,
    "spread": lambda context, _: spread(context),
    "small": lambda context, _: nbytes(context.avals_in) < SMALL,
    "many": lambda context, _: len(context.avals_in) + len(context.avals_out) > MOST,
    "by XLA": _by_xla,
    "refused": _refused,
}
"""Name -> whether it keeps the kernel out of a program, given JAX's context and the copies."""


def called(
    context: Any, operands: Sequence[Any], orders: Sequence[Sequence[int]], moves: Moves
) -> Sequence[Any] | None:
    """The results by calls of the kernel, or None where one of the gates is closed.

    Args:
        context: JAX's, with what is known of operands and results.
        operands: what is read.
        orders: the axes of each operand, fastest first.
        moves: the copies.
    """
    if moves is not _TRIAL_MOVES and any(closed(context, moves) for closed in GATES.values()):
        return None
    made = _planned(context, moves)
    if made is None:  # the copies have too many axes
        return None
    try:
        return launched(context, operands, orders, made)
    except CompileError as error:
        if moves is _TRIAL_MOVES:
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


@cache
def why_not() -> str:
    """Why the kernel is not to be used, or nothing; the first question is a trial."""
    if os.environ.get("XLAYOUT_TRITON") == "off":
        return "switched off by XLAYOUT_TRITON=off"
    if capability() is None:
        return "JAX sees no CUDA device, or several kinds of them"
    try:
        with jax.ensure_compile_time_eval():
            halves = np.arange(2 * 3 * 66 * 40, dtype=np.int32).reshape(2, 3, 66, 40)
            there = jax.device_put((*halves,), jax.local_devices(backend="cuda")[0])
            (made,) = relayout_p.bind(*there, linear=_TRIAL)
            # Asked for by name: `jax.transfer_guard` may refuse what is not.
            if not np.array_equal(jax.device_get(made), _TRIAL.plain([*halves])[0]):
                return "a trial came out wrong"
    except Exception as error:  # noqa: BLE001 -- whatever it is, XLA can copy
        return reason_of(error)
    return ""


@dataclass(frozen=True, slots=True)
class _Trial:
    """Two arrays, transposed and joined; nobody differentiates or maps it."""

    out_shapes: tuple[tuple[int, ...], ...] = ((3, 80, 66),)

    def moves(self, _strides: Sequence[tuple[int, ...]], /) -> Moves:
        return _TRIAL_MOVES

    def plain(self, arrays: Sequence[Any], /) -> list[Any]:
        return [np.concatenate([x.swapaxes(1, 2) for x in arrays], 1)]


_LOOPS = (3, 66 * 40, 80 * 66), (66, 40, 1), (40, 1, 66)
_TRIAL_MOVES: Moves = tuple((k, 0, (0, k * 40 * 66, _LOOPS)) for k in range(2))
_TRIAL = _Trial()
