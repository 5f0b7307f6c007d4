"""Calls: the function that runs a layout on arrays of one kind, and the backend they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from xlayout.backend import Backend, Run, Runs
from xlayout.dynamo import dynamo_reads
from xlayout.errors import SizeError
from xlayout.lower.fill import checked
from xlayout.lower.recipe import Recipe
from xlayout.registry import SERVED, backend_of

__all__ = [
    "Comm",
    "any_sharded",
    "array_name",
    "caller",
    "common_backend",
    "kind_of",
    "look_up",
]


Comm = Literal["auto", "local", "native"]
"""What moves data between devices: one exchange of ours, nothing (an error), or the framework."""


def caller(
    arrays: Sequence[Any],
    recipe_of: Callable[..., Recipe],
    sharded: Callable[..., Any] | None = None,
    filled: tuple[Any, str] | None = None,
) -> Callable[..., Any]:
    """The function that is cached for calls like this one, compiled if the framework does that.

    Args:
        arrays: the arrays of the first call.
        recipe_of: arrays -> the recipe for their shapes.
        sharded: runs sharded arrays; None treats them like any others.
        filled: the fill value and the name of its option, to check it against later dtypes; the
            recipe checks the first.
    """
    backend = backend_of(arrays[0])
    made = backend.compiled(lambda *xs: recipe_of(*xs)(*xs), sharded, arrays)
    if made is not None:
        return made  # traced again for another dtype, with another recipe
    run = sharded if sharded and any_sharded(backend, arrays) else recipe_of(*arrays)
    if filled is not None:
        run = checked(run, *filled)
    return run


# Else Dynamo would guard on the cache and on the types seen so far.
@dynamo_reads(lambda _runs, _x, _args, _options: None)
def look_up(
    runs: Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any]
) -> Run | None:
    """The function cached for a call like this one, or None; `x` is a tuple if `args` is None."""
    try:
        backend = SERVED[type(x if args is not None else x[0])]
    except (IndexError, KeyError):
        return None
    return backend.find(runs, x, args, options)


def any_sharded(backend: Backend, arrays: Sequence[Any]) -> bool | None:
    """Whether any of these is sharded; None if that is unknown for one of them."""
    found = [backend.is_sharded(x) for x in arrays]
    return None if None in found else True in found


def common_backend(arrays: Sequence[Any], names: str | Sequence[str] = "arrays") -> Backend:
    """The one backend of all arrays, which must agree in dtype and device.

    Args:
        arrays: the arrays of one call.
        names: their names in error messages: one for all, or one for each.

    Raises:
        TypeError: naming the two that differ.
        SizeError: for no arrays at all.
    """
    if not arrays:
        raise SizeError(f"{names}: no arrays; give at least one")
    name = array_name(names, 0)
    backend = backend_of(arrays[0], name)
    kind = kind_of(backend, arrays[0], name)
    for number, x in enumerate(arrays[1:], 1):
        name = array_name(names, number)
        other = backend_of(x, name)
        if other is not backend:
            known = backend.name in ("numpy", "torch", "jax")
            way = f" (xlayout.to_{backend.name})" if known else ""
            differ = _differ(names, number, backend.name, other.name)
            raise TypeError(f"{differ}; one framework per call{way}")
        its = kind_of(other, x, name)
        if its != kind:
            there = f"{x.dtype} on {its[1]}"
            differ = _differ(names, number, f"{kind[0]} on {kind[1]}", there)
            raise TypeError(f"{differ}; one of each per call")
    return backend


def kind_of(backend: Backend, x: Any, name: str) -> tuple[Any, Any]:
    """`Backend.kind`, whose errors call every array `x`, with errors that use its name.

    >>> import numpy as np
    >>> kind_of(backend_of(np.float32(1)), np.float32(1), "xs[1]")
    Traceback (most recent call last):
        ...
    TypeError: xs[1]: the scalar np.float32(1.0); wanted an array, as np.asarray(x)
    """
    try:
        return backend.kind(x)
    except (TypeError, ValueError) as error:
        text = str(error)
        if name == "x" or not text.startswith("x: "):
            raise
        raise type(error)(name + text[1:]) from error


def array_name(names: str | Sequence[str], number: int) -> str:
    """The name of one array in error messages."""
    return f"{names}[{number}]" if isinstance(names, str) else names[number]


def _differ(names: str | Sequence[str], number: int, first: str, other: str) -> str:
    """An error text about two arrays that differ."""
    if isinstance(names, str):
        return f"{names}: 0 is {first}, {number} is {other}"
    return f"{names[0]} is {first}, {names[number]} is {other}"
