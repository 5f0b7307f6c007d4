"""Fill: whether a number can stand in an array of some dtype, asked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xlayout.errors import ShapeError

__all__ = ["check_fill", "checked"]


def check_fill(dtype: Any, value: Any) -> None:
    """Refuse a value for holes that the dtype would wrap, cut or drop a part of.

    Frameworks differ here: one raises, one wraps 300 to 44, one turns NaN into an integer.

    Raises:
        TypeError: for something that is no number.
        ShapeError: for a number that `dtype` cannot hold.
    """
    if not isinstance(value, (bool, int, float, complex)):
        raise TypeError(f"fill: {value!r} is a {type(value).__name__}; wanted a number")
    name = str(dtype).rpartition(".")[2]
    if name == "bool":
        fits = value in (0, 1)
        wanted = "False or True"
    elif name.startswith(("int", "uint")):
        bits = int(name.lstrip("uint"))
        low, high = (
            (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        fits = not isinstance(value, complex) and low <= value <= high and value == int(value)
        wanted = f"an integer from {low} to {high}"
    else:
        fits = name.startswith("complex") or not isinstance(value, complex)
        wanted = "a real number"
    if not fits:
        raise ShapeError(f"fill: {value!r} in an array of {name}; wanted {wanted}")


def checked(run: Callable[..., Any], value: Any) -> Callable[..., Any]:
    """`run`, for arrays whose dtype can hold the value of its holes."""
    fitting = set()

    def call(*arrays: Any) -> Any:
        if (dtype := arrays[0].dtype) not in fitting:
            check_fill(dtype, value)
            fitting.add(dtype)
        return run(*arrays)

    return call
