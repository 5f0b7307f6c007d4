"""Fill: whether a number can stand in an array of some dtype, asked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from xlayout.errors import ShapeError

__all__ = ["check_fill", "checked"]

# The greatest number of a float, and whether it has an infinity beside.
_FLOATS = {
    "float4_e2m1fn": (6.0, False),
    "float8_e3m4": (15.5, True),
    "float8_e4m3": (240.0, True),
    "float8_e4m3b11fnuz": (30.0, False),
    "float8_e4m3fn": (448.0, False),
    "float8_e4m3fnuz": (240.0, False),
    "float8_e5m2": (57344.0, True),
    "float8_e5m2fnuz": (57344.0, False),
    "float8_e8m0fnu": (2.0**127, False),
    "float16": (65504.0, True),
    "bfloat16": (2.0**128 - 2.0**120, True),
    "float32": (2.0**128 - 2.0**104, True),
    "float64": (2.0**1023 * (2 - 2.0**-52), True),
    "complex64": (2.0**128 - 2.0**104, True),
    "complex128": (2.0**1023 * (2 - 2.0**-52), True),
}

_COUNTED = "int", "uint", "datetime64", "timedelta64"


def check_fill(dtype: Any, value: Any, argument: str = "fill") -> None:
    """Refuse a value for holes that the dtype would wrap, cut, drop a part of or take for infinite.

    Frameworks differ here: one raises, one wraps 300 to 44, one turns NaN into an integer and 1e6
    into infinity. A number is rounded, as any is. `argument` is what the caller calls it.

    Raises:
        TypeError: for something that is no number.
        ShapeError: for a number that `dtype` cannot hold.
    """
    if not isinstance(value, (bool, int, float, complex)):
        raise TypeError(f"{argument}: {value!r} is a {type(value).__name__}; wanted a number")
    name = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    if name == "bool":
        fits = value in (0, 1)
        wanted = "False or True"
    elif name.startswith(("str", "bytes")):
        room = int(name.lstrip("strbye") or 0) // (32 if name[0] == "s" else 8)
        fits, wanted = len(str(value)) <= room, f"what is written in {room} characters"
    elif name.startswith("void"):
        fits, wanted = value == 0, "0, for bytes that are all zero"
    elif name.startswith(_COUNTED):
        bits = int(name.lstrip("uint")) if "int" in name else 64
        low, high = (
            (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        fits = not isinstance(value, complex) and low <= value <= high and value == int(value)
        wanted = f"an integer from {low} to {high}"
    else:
        fits, wanted = name.startswith("complex") or not isinstance(value, complex), "a real number"
        if fits and name in _FLOATS:
            most, infinite = _FLOATS[name]
            parts = (value.real, value.imag)
            fits = not any(abs(n) > most and not (infinite and abs(n) == inf) for n in parts)
            if not fits:  # said only then: Dynamo knows no such number where sizes are dynamic
                also = " or an infinity" if infinite else ""
                wanted = f"a number from {-most:g} to {most:g}{also}"
        if fits and name == "float8_e8m0fnu" and not (value.real > 0 or value != value):
            fits, wanted = False, "a number above zero"  # it is an exponent alone
        if fits and name == "float4_e2m1fn" and value != value:
            fits, wanted = False, "a number, of which it has no NaN"
    if not fits:
        raise ShapeError(f"{argument}: {value!r} in an array of {name}; wanted {wanted}")


def checked(run: Callable[..., Any], value: Any, argument: str = "fill") -> Callable[..., Any]:
    """`run`, for arrays whose dtype can hold the value of its holes."""
    fitting = set()

    def call(*arrays: Any) -> Any:
        if (dtype := arrays[0].dtype) not in fitting:
            check_fill(dtype, value, argument)
            fitting.add(dtype)
        return run(*arrays)

    return call
