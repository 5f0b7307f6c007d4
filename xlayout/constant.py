"""Constant: functions whose answers a compiler takes as they are, without reading what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["constant"]

F = TypeVar("F", bound=Callable[..., Any])


def constant(function: F) -> F:
    """`function`, which Dynamo calls while it records, and whose result is a constant of the graph.

    What `torch.compiler.assume_constant_result` does, without importing torch. Arguments are to be
    texts, numbers and tuples: those Dynamo compares before a program runs again.

    >>> @constant
    ... def twice(n: int) -> int:
    ...     return 2 * n
    >>> twice(4)
    8
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
