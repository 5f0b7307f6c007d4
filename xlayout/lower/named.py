"""Named: functions under names, for compilers that tell functions apart by their code alone.

All ops are closures over the same code. Dynamo takes them for one function, and would run for one
op what it recorded for another. It compares strings by value, whereas differing numbers would
become dynamic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["function_named", "name_of"]

_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def name_of(function: Callable[..., Any]) -> str:
    """A new name by which `function_named` finds this function; it is never forgotten.

    >>> name_of(abs) == name_of(abs)
    False
    >>> function_named(name_of(abs))(-3)
    3
    """
    name = f"{function.__name__}, {len(_FUNCTIONS)}"
    _FUNCTIONS[name] = function
    return name


def function_named(name: str) -> Callable[..., Any]:
    """The function of a name."""
    return _FUNCTIONS[name]
