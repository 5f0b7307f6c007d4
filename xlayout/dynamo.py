"""Dynamo: what torch's compiler is told of a function, without importing torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["constant", "dynamo_reads"]

F = TypeVar("F", bound=Callable[..., Any])


def constant(function: F) -> F:
    """`function`, which Dynamo calls while it records, and whose result is a constant of the graph.

    What `torch.compiler.assume_constant_result` does. Arguments are to be texts, numbers and
    tuples: those Dynamo compares before a program runs again.

    >>> @constant
    ... def twice(n: int) -> int:
    ...     return 2 * n
    >>> twice(4)
    8
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def dynamo_reads(reader: Callable[..., Any]) -> Callable[[F], F]:
    """Mark a function in whose place Dynamo reads `reader`, which is to do the same.

    A function that remembers its answers is fast, and bad to compile: Dynamo compares what it read
    before a program runs again, and what is remembered grows. This is the mark that `torch.compile`
    leaves on its own results, to be read through. The function that is compiled first, as in
    `torch.compile(function)`, is read itself.

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
