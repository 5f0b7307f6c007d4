"""Opaque: functions that Dynamo does not trace.

Marking them imports Dynamo, which takes a second: so this is imported only while Dynamo traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

_CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
_NUMBERS: dict[Any, int] = {}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def number(function: Callable[..., Any], form: tuple[Any, ...], *leaves: Any) -> int:
    """The number of a call, the same each time: a graph holds numbers, but no functions."""
    # By their text too: 0 is equal to -0.0, and a layout to one of other pieces.
    key = (function, form, *((type(leaf), leaf, repr(leaf)) for leaf in leaves))
    try:
        found = _NUMBERS.setdefault(key, len(_CALLS))
    except TypeError:  # something in it has no hash
        found = len(_CALLS)
    if found == len(_CALLS):
        _CALLS.append((function, _filled(form, iter(leaves))))
    return found


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def call(which: int, *arrays: Any) -> Any:
    """The call of that number, as one node."""
    function, static = _CALLS[which]
    return function(arrays, *static)


def _filled(form: tuple[Any, ...], leaves: Iterator[Any]) -> tuple[Any, ...]:
    """The values that `record` took apart into this form and these leaves."""
    made: list[Any] = []
    for part in form:
        if part is None:
            made.append(next(leaves))
        else:
            several = _filled(part[1], leaves)
            made.append(list(several) if part[0] else several)
    return tuple(made)
