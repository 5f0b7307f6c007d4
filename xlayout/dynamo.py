"""Dynamo: marks on functions for torch's compiler, without importing torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["constant", "dynamo_reads"]

F = TypeVar("F", bound=Callable[..., Any])


def constant(function: F) -> F:
    """Mark a function that Dynamo calls while tracing; its result is a constant of the graph.

    Like `torch.compiler.assume_constant_result`. The arguments must be strings, numbers and tuples,
    which Dynamo compares before it runs the graph again.

    >>> @constant
    ... def twice(n: int) -> int:
    ...     return 2 * n
    >>> twice(4)
    8
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def dynamo_reads(reader: Callable[..., Any]) -> Callable[[F], F]:
    """Mark a function for which Dynamo traces `reader` instead, which must be equivalent.

    A function with a cache is bad to compile: Dynamo guards on everything that it read, and a cache
    grows. `torch.compile` puts this mark on its own results, so that Dynamo traces the original. A
    marked function that is compiled directly, as in `torch.compile(function)`, is traced itself.

    >>> @dynamo_reads(lambda n: n + n)
    ... def twice(n: int) -> int:
    ...     return 2 * n
    >>> twice(4)
    8
    """

    def marked(function: F) -> F:
        function._torchdynamo_inline = reader  # type: ignore[attr-defined]
        return function

    return marked
