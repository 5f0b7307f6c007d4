"""Opaque: functions that Dynamo does not look into.

Marking them imports Dynamo, which takes a second: this is imported only where Dynamo is at work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_static_value

from xlayout_torch.memory import PLAIN, strided

_CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
_NUMBERS: dict[Any, int] = {}


def symbolic(n: int) -> bool:
    """Whether a size is open, though Dynamo shows it as a plain int."""
    return not has_static_value(n)


def as_constants(arrays: Sequence[Any], args: Sequence[Any], options: dict[str, Any]) -> Any | None:
    """A call as constants, if to Dynamo all of it but the elements is constant; else None."""
    seen = []
    for x in arrays:
        if type(x) not in PLAIN or not strided(x) or x.is_quantized:
            return None
        for n in x.shape:
            if not has_static_value(n):
                return None
        seen.append(((*x.shape,), x.dtype, x.device, x.is_contiguous()))
    for value in (*args, *options.values()):
        if not _is_constant(value):
            return None
    return "torch", (*seen,), args, (*options.items(),)


def _is_constant(value: Any) -> bool:
    kind = type(value).__name__  # the classes themselves would be guarded, each of them
    if kind == "tuple":
        return all(_is_constant(part) for part in value)
    if kind == "int" or kind == "float":
        return has_static_value(value)
    return kind == "str" or kind == "bool" or kind == "NoneType"


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def number(function: Callable[..., Any], joined: Callable[..., Any], *parts: Any) -> int:
    """A graph holds tensors and numbers; so a call is known by a number, the same each time."""
    # By their text too: 0 is equal to -0.0, and a layout to one of other pieces.
    key = (function, joined, *((type(part), part, repr(part)) for part in parts))
    try:
        found = _NUMBERS.setdefault(key, len(_CALLS))
    except TypeError:  # something in it has no hash
        found = len(_CALLS)
    if found == len(_CALLS):
        _CALLS.append((function, joined(*parts)))
    return found


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def call(which: int, *arrays: Any) -> Any:
    """The call of that number, as one node."""
    function, static = _CALLS[which]
    return function(arrays, *static)
