"""Programs: whether a kernel may be called in the program that JAX is making, and how."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import jax
from jax.interpreters import mlir

from xlayout_native.switch import WATCHERS, wanted

__all__ = ["gates_of", "is_partial", "nbytes", "on", "order_of"]

_SWITCH: list[Any] = []  # JAX's own, from the first use on
_LOCK = Lock()


def _switched(on: bool) -> Any:
    """The switch as part of what jit remembers its results by."""
    # To add a part has JAX trace and compile all that it has: not before somebody switches.
    with _LOCK:
        if not _SWITCH:
            make_context: Any = jax.make_user_context  # ships no type
            _SWITCH.append(make_context(True))
    return _SWITCH[0](on)


WATCHERS.append(_switched)


def on() -> bool:
    """Whether kernels are wanted here and now."""
    return all(switch.value for switch in _SWITCH) and wanted()


def nbytes(arrays: Sequence[Any]) -> int:
    """Bytes of all arrays, or of what stands for them."""
    return int(sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays))


def is_partial(context: Any, moves: Sequence[Any]) -> bool:
    """Whether a layout drops elements of the operands, or fills some of the results with zeros."""
    given, made = context.avals_in, context.avals_out
    return nbytes(given) != nbytes(made) or any(move[0] == len(given) for move in moves)


def gates_of(platform: str) -> dict[str, Callable[[Any, Any], bool]]:
    """What keeps the kernel for a platform out of a program, whatever the layout is.

    Name -> whether it does, given JAX's context and the copies.
    """
    return {
        "off": lambda _context, _moves: not on(),
        "elsewhere": lambda context, _: tuple(context.module_context.platforms) != (platform,),
        "exported": lambda context, _: context.module_context.lowering_parameters.for_export,
        "spread": lambda context, _: _is_spread(context),
    }


def _is_spread(context: Any) -> bool:
    """Whether a program runs on several devices, and its arrays are not yet each device's own."""
    # XLA cannot split a call: it would gather whole arrays before it. In shard_map it need not.
    where = context.module_context.axis_context
    if hasattr(where, "manual_axes"):
        return bool(where.manual_axes != frozenset(where.mesh.axis_names))
    return bool(getattr(where, "num_devices", 0) != 1)


def order_of(operand: Any, ndim: int) -> tuple[int, ...]:
    """The axes, fastest first, of an argument that the caller laid out; else row-major."""
    attributes = ""
    if isinstance(operand, mlir.ir.BlockArgument):
        function: Any = operand.owner.owner.attributes
        if "arg_attrs" in function:
            attributes = str(function["arg_attrs"][operand.arg_number])
    found = re.search(r'layout_mode = "\{(\d+(?:,\d+)*)\}"', attributes)
    return tuple(map(int, found[1].split(","))) if found else tuple(reversed(range(ndim)))
