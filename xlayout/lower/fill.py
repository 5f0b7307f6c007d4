"""Fill: whether a dtype can hold a fill value, checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf
from typing import Any

from xlayout.algebra.shapes import a_type
from xlayout.errors import ShapeError
from xlayout.registry import backend_of, submodule

__all__ = ["as_number", "check_fill", "checked", "has_zero", "is_held", "is_zero"]

# The greatest finite number of a float, and whether it has infinities.
_FLOATS = {
    "float4_e2m1fn": (6.0, False),
    "float6_e2m3fn": (7.5, False),
    "float6_e3m2fn": (28.0, False),
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
    "complex32": (65504.0, True),
    "complex64": (2.0**128 - 2.0**104, True),
    "complex128": (2.0**1023 * (2 - 2.0**-52), True),
}

_WITHOUT_NAN = "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"
_INTEGERS = "int", "uint", "datetime64", "timedelta64"  # how names of integer dtypes begin


def check_fill(dtype: Any, value: Any, argument: str = "fill") -> None:
    """Refuse a fill value that the dtype would wrap, truncate, lose part of or turn infinite.

    Frameworks differ here: one raises, one wraps 300 to 44, one turns NaN into an integer and 1e6
    into infinity. Rounding is allowed. `argument` is the value's name in error messages.

    Raises:
        TypeError: for something that is not a number.
        ShapeError: for a number that `dtype` cannot hold.
    """
    if not isinstance(value, (bool, int, float, complex)):
        if asked := _derivative(value):
            raise TypeError(
                f"{argument}: it {asked}, and no derivative goes through what fills holes; "
                f"pass {argument}.item(), or join it to the array by torch.cat"
            )
        raise TypeError(f"{argument}: {value!r} is {a_type(value)}; wanted a number")
    name = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    wanted = _wanted("void" if _is_void(dtype) else name, value)
    if wanted is not None:
        raise ShapeError(f"{argument}: {value!r} in an array of {name}; wanted {wanted}")


def _wanted(name: str, value: Any) -> str | None:
    """What a dtype can hold, if it cannot hold this value; else None."""
    if name == "bool":
        return None if value in (0, 1) else "False or True"
    if name.startswith(("str", "bytes")):
        room = _digits(name) // (32 if name[0] == "s" else 8)
        return None if len(str(value)) <= room else f"what is written in {room} characters"
    if name == "void":
        return None if value == 0 else "0, for bytes that are all zero"
    if name == "datetime64":  # which holds no number, nor can numpy print one in it
        return "a unit, such as that of x.astype('M8[s]')"
    if name.startswith("key<"):
        return "none: random keys are no numbers, so fill jax.random.key_data(x) instead"
    if name.startswith(_INTEGERS):
        bits = _digits(name) if "int" in name else 64
        low, high = (
            (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        numbers = int if "time" in name else (int, float)  # of floats numpy makes no dates
        whole = isinstance(value, numbers) and low <= value <= high and value == int(value)
        return None if whole else f"an integer from {low} to {high}"
    if isinstance(value, complex) and not name.startswith("complex"):
        return "a real number"
    return _wanted_in_floats(name, value)


def _is_void(dtype: Any) -> bool:
    """Whether elements are records or plain bytes; numpy names their dtype after their class."""
    if getattr(dtype, "kind", "") != "V":  # which is that of ml_dtypes as well
        return False
    return any(base.__name__ == "void" for base in dtype.type.__mro__)


def _wanted_in_floats(name: str, value: Any) -> str | None:
    """The same for floats and complex numbers; nothing is asked of a dtype that is not known."""
    if name in _FLOATS:
        most, infinite = _FLOATS[name]
        # Dynamo cannot take the real part of a symbolic number.
        parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
        # With dynamic sizes `most` is symbolic too, and cannot be compared with NaN.
        if any(n == n and abs(n) > most and not (infinite and abs(n) == inf) for n in parts):
            # Formatted only here: with dynamic sizes Dynamo cannot format such a number.
            return f"a number from {-most:g} to {most:g}{' or an infinity' if infinite else ''}"
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return "a float, or an int of 64 bits"  # which frameworks take, each in its own way
    if name == "float8_e8m0fnu" and not (value >= 2.0**-127 or value != value):
        return "a number from 2**-127 to 2**127"  # it is only an exponent
    if name in _WITHOUT_NAN and value != value:
        return "a number, of which it has no NaN"
    return None


def _digits(name: str) -> int:
    """The number in the name of a dtype.

    >>> _digits("uint16"), _digits("str")
    (16, 0)
    """
    return int("".join([c for c in name if c.isdigit()]) or 0)


_HOLDERS = frozenset({"numpy", "jaxlib._jax", "torch"})
"""Modules of the array types with concrete values; tracers are in others."""


def is_held(value: Any) -> bool:
    """Whether a value is a framework's own, concrete, and not being differentiated."""
    return type(value).__module__ in _HOLDERS and not _derivative(value)


def _derivative(value: Any) -> str | None:
    """What asks for a derivative by a value, in words; None if nothing does."""
    if not hasattr(value, "requires_grad"):
        return None
    if type(value).__module__ == "torch":
        reason: str | None = submodule(backend_of(value), "derivatives").asked(value)
        return reason
    return "requires grad" if value.requires_grad else None


def as_number(value: Any) -> Any:
    """A framework's scalar as a Python number, which all frameworks treat alike.

    >>> import numpy as np
    >>> as_number(np.int8(3)), as_number("3")
    (3, '3')
    """
    if not is_held(value) or getattr(value, "shape", True):
        return value
    if getattr(value.dtype, "kind", "") in ("M", "m"):  # some of numpy's dates become integers
        return value
    number = value.item()
    if type(number) is not type(value):
        return number
    number = complex(value) if value.dtype.kind == "c" else float(value)  # from a long double
    return number if number == value or value != value else value


def is_zero(value: Any) -> bool:
    """Whether all bits of a fill value are zero, in every dtype.

    >>> is_zero(0), is_zero(-0.0)
    (True, False)
    """
    if type(value) is int and value == 0:  # noqa: SIM103 -- a dynamic number is no constant, but compared it is
        return True
    return False


@lru_cache(256)
def has_zero(dtype: Any) -> bool:
    """Whether a dtype can hold 0."""
    try:
        check_fill(dtype, 0)
    except ShapeError:
        return False
    return True


def checked(run: Callable[..., Any], value: Any, argument: str = "fill") -> Callable[..., Any]:
    """`run`, refusing arrays whose dtype cannot hold the fill value."""
    fitting = set()

    def call(*arrays: Any) -> Any:
        if (dtype := arrays[0].dtype) not in fitting:
            check_fill(dtype, value, argument)
            fitting.add(dtype)
        return run(*arrays)

    return call
