"""Opaque: functions that Dynamo does not look into.

Marking them imports Dynamo, which takes a second: this is imported only where Dynamo is at work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
_NUMBERS: dict[Any, int] = {}


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
