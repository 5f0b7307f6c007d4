"""Answers: what a function returned or refused, carried past a compiler and told behind it.

Dynamo takes what a constant function raises for a fault of its own. Of what it reads it does not:
that can be caught in the compiled function, and is itself where it comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from xlayout.errors import LayoutError

__all__ = ["Answer", "answered", "answering"]

P = ParamSpec("P")

Answer = tuple[Any, str | None, type[LayoutError] | None]
"""What a function returned, or the text of its refusal, and the class of that: None, a TypeError.

(Dynamo has no constants that are classes of Python's own.)
"""


def answering(function: Callable[P, Any]) -> Callable[P, Answer]:
    """`function`, which returns its refusals too, for `answered` to raise."""

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
    """What an `answering` function returned, or what it raised, raised here.

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
