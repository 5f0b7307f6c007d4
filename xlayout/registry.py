"""Registry: which backend serves an array, by the array's type.

A backend is imported when one of its arrays first shows up. The imports are literal, so that
tracers, type checkers, linters and readers can follow them; results are cached in a plain dict,
because tracers cannot see through `functools.cache`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from xlayout.backend import Backend
from xlayout.dynamo import constant, dynamo_reads
from xlayout.room import make_room

__all__ = ["MOST_TYPES", "SERVED", "backend_module", "backend_named", "backend_of", "submodule"]

SERVED: dict[type, Backend] = {}
"""Type -> backend, for the types seen so far; looking here first is cheaper than `backend_of`."""

MOST_TYPES = 1024
"""Types that a cache keeps: else each class that a program makes as it goes would live for ever."""


# Dynamo traces this shorter form: on every call it checks that each function and each default value
# that it has traced is still the same.
@dynamo_reads(lambda x, *name: _builtin(_root(type(x))) or _find(type(x), *name))
def backend_of(x: Any, name: str = "x") -> Backend:
    """The backend that serves `x`.

    Args:
        x: an array.
        name: its name in error messages; empty if the caller adds it.

    Raises:
        TypeError: for something other than an array of a known framework.
    """
    cls = type(x)
    backend = SERVED.get(cls)
    if backend is None:
        backend = _find(cls, name)
        if not _compiling(backend):  # what Dynamo has read must not change while it compiles
            make_room(SERVED, MOST_TYPES)
            SERVED[cls] = backend
    return backend


def _compiling(backend: Backend) -> bool:
    record = getattr(backend, "record", None)
    return record is not None and record.compiling()


def backend_named(name: str) -> Backend:
    """The backend of a framework, imported now.

    Raises:
        ImportError: naming the extra to install, when the framework cannot be imported.
        TypeError: for an unknown name.
    """
    try:
        backend = _builtin(name)
    except ImportError as error:
        why = "is not installed" if error.name == name else f"cannot be imported ({error})"
        raise ImportError(f"{name} {why}; pip install 'xlayout-arrays[{name}]'") from error
    if backend is None:
        raise TypeError(f"backend: {name!r}; wanted 'numpy', 'torch' or 'jax'")
    return backend


def backend_module(name: str, part: str) -> Any:
    """A module of a framework's backend, such as `exchange`, with verbs that few programs need.

    Raises:
        ImportError: naming the extra to install, when the framework cannot be imported.
    """
    return submodule(backend_named(name), part)


def submodule(backend: Backend, part: str) -> Any:
    """A module of a backend, given the backend itself.

    Raises:
        TypeError: for a backend without such a module.
    """
    loaded = getattr(backend, part, None)  # no import to trace once it is loaded
    if loaded is not None:
        return loaded
    package = cast(Any, backend).__name__
    try:
        return import_module(f"{package}.{part}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{part}":
            raise
        raise TypeError(f"backend {package} has no module {part!r}: it cannot do that") from error


_ROOTS = ("numpy", "ml_dtypes", "torch", "jax", "jaxlib")


def _builtin(root: str) -> Backend | None:
    match root:
        case "numpy" | "ml_dtypes":
            import xlayout_numpy

            return xlayout_numpy
        case "torch":
            import xlayout_torch

            return xlayout_torch
        case "jax" | "jaxlib":
            import xlayout_jax

            return xlayout_jax
        case _:
            return None


def _find(cls: type, name: str = "x") -> Backend:
    backend = _builtin(_root(cls)) or _from_plugins(cls)
    if backend is None:
        raise TypeError(
            f"{name and f'{name}: '}expected a torch.Tensor, jax.Array or numpy.ndarray, got "
            f"{cls.__module__}.{cls.__qualname__}; "
            "convert it first, or register a backend for its type under the entry-point group "
            "'xlayout.backends'"
        )
    return backend


@constant  # Dynamo can read neither the module of a Parameter's class nor its bases
def _root(cls: type) -> str:
    roots = _roots(cls)
    # One of JAX's array types derives from numpy's: its memory is numpy's all the same.
    return next((root for root in _ROOTS if root in roots), roots[0])


def _roots(cls: type) -> list[str]:
    """The root modules of a class and of its bases, nearest first."""
    return [base.__module__.partition(".")[0] for base in cls.__mro__ if not _is_no_array(base)]


def _is_no_array(base: type) -> bool:
    """Whether a class is numpy's, but of no array: others' arrays derive from its mixins."""
    numpys = base.__module__.partition(".")[0] == "numpy"
    return numpys and base.__name__ not in ("ndarray", "generic")


def _from_plugins(cls: type) -> Backend | None:
    from importlib.metadata import entry_points  # 15 ms, and rarely needed

    announced = entry_points(group="xlayout.backends")
    for root in _roots(cls):
        if root in announced.names and root != "builtins":  # where every class has its last base
            plugin: Backend = announced[root].load()
            return plugin
    return None
