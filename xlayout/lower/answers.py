"""Answers: results and errors as values, to carry an error through a compiler.

If a function that Dynamo calls for a constant raises an error, Dynamo reports a failure of its own.
An error raised by code that Dynamo traces can be caught in the compiled function, and reaches its
caller unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from xlayout.errors import LayoutError

__all__ = ["Answer", "answered", "answering"]

P = ParamSpec("P")

Answer = tuple[Any, str | None, type[LayoutError] | None]
"""(result, message, class of the error): the message is None if there was no error.

The class is None for a TypeError, because Dynamo has no constants that are built-in classes.
"""


def answering(function: Callable[P, Any]) -> Callable[P, Answer]:
    """`function`, with its errors returned instead of raised; `answered` raises them."""

    @wraps(function)
    def asked(*args: P.args, **named: P.kwargs) -> Answer:
        try:
            return function(*args, **named), None, None
        except LayoutError as error:
            return None, str(error), type(error)
        except TypeError as error:
            return None, str(error), None

    return asked


def answered(answer: Answer) -> Any:
    """The result of an `answering` function; its error is raised here.

    >>> half = answering(lambda n: n // 2)
    >>> answered(half(8))
    4
    >>> answered(half("8"))
    Traceback (most recent call last):
        ...
    TypeError: unsupported operand type(s) for //: 'str' and 'int'
    """
    made, why, kind = answer
    if why is None:
        return made
    raise TypeError(why) if kind is None else kind(why)
