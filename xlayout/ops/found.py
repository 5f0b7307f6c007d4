"""Found: the functions of an engine, by which a call that is like one before goes straight on.

Dynamo reads another way, past all that is remembered: it would compare that each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xlayout.dynamo import dynamo_reads
from xlayout.ops.engine import Engine
from xlayout.registry import SERVED, backend_of

__all__ = ["nary", "unary"]


def unary(engine: Engine) -> Callable[..., Any]:
    """The function of one array; of a list too, if the engine takes any number of shapes."""
    runs, several = engine.runs, nary(engine) if engine.packed else None

    def recorded(x: Any, /, *args: Any, **options: Any) -> Any:
        if several is not None and isinstance(x, (tuple, list)):
            return several(tuple(x), engine.named(args, options))
        return engine.anew(backend_of(x), (x,), args, options)

    @dynamo_reads(recorded)
    def call(x: Any, /, *args: Any, **options: Any) -> Any:
        try:
            backend = SERVED[type(x)]
        except KeyError:  # an error has no business in the one that may come
            backend = None
        if backend is None:
            if several is not None and isinstance(x, (tuple, list)):
                return several(tuple(x), engine.named(args, options))
            backend = backend_of(x)
        run = backend.find(runs, x, args, options)
        if run is None:
            return engine.anew(backend, (x,), args, options)
        try:
            if "out" in options and options["out"] is not None:
                return run((x,), options["out"])
            return run(x)
        except RuntimeError:
            engine.backend((x,))  # no key tells a sparse tensor from a dense one
            raise

    return call


def nary(engine: Engine) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """The same for a tuple of arrays and a dict of options."""
    runs = engine.runs

    def recorded(arrays: tuple[Any, ...], options: dict[str, Any]) -> Any:
        backend = backend_of(arrays[0]) if arrays else engine.backend(arrays)
        return engine.anew(backend, arrays, None, options)

    @dynamo_reads(recorded)
    def call(arrays: tuple[Any, ...], options: dict[str, Any]) -> Any:
        try:
            backend = SERVED[type(arrays[0])]
        except (IndexError, KeyError):
            backend = None
        if backend is None:
            backend = engine.backend(arrays)
        run = backend.find(runs, arrays, None, options)
        if run is None:
            return engine.anew(backend, arrays, None, options)
        try:
            if "out" in options and options["out"] is not None:
                return run(arrays, options["out"])
            return run(*arrays)
        except RuntimeError:
            engine.backend(arrays)  # nor one device from another
            raise

    return call
