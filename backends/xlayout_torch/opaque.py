"""Opaque: functions that Dynamo does not trace.

Marking them imports Dynamo, which takes a second: so this is imported only while Dynamo traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
_NUMBERS: dict[Any, int] = {}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def number(function: Callable[..., Any], joined: Callable[..., Any], *parts: Any) -> int:
    """The number of a call, the same each time: a graph holds numbers, but no functions."""
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
