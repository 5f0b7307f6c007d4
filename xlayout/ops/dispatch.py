"""Dispatch: an engine's array functions, which look up calls like earlier ones first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xlayout.lower.calls import array_name, common_backend, look_up
from xlayout.ops.engine import Engine
from xlayout.registry import backend_of

__all__ = ["nary", "unary"]


def unary(engine: Engine) -> Callable[..., Any]:
    """The function of one array; of a list too, if the engine takes any number of shapes."""
    runs, several = engine.runs, nary(engine) if engine.packed else None

    def call(x: Any, /, *args: Any, **options: Any) -> Any:
        run = look_up(runs, x, args, options)
        if run is None:
            if several is not None and isinstance(x, (tuple, list)):
                return several(tuple(x), engine.named(args, options))
            return engine.run_uncached(backend_of(x), (x,), args, options)
        try:
            if "out" in options and options["out"] is not None:
                return run((x,), options["out"])
            return run(x)
        except (RuntimeError, ValueError):
            common_backend((x,), ("x",))  # cache keys do not cover sparsity or deletion
            raise

    return call


def nary(engine: Engine) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """The same for a tuple of arrays and a dict of options."""
    runs = engine.runs

    def call(arrays: tuple[Any, ...], options: dict[str, Any]) -> Any:
        run = look_up(runs, arrays, None, options)
        if run is None:
            name = array_name(engine.names, 0)
            backend = backend_of(arrays[0], name) if arrays else engine.backend(arrays)
            return engine.run_uncached(backend, arrays, None, options)
        try:
            if "out" in options and options["out"] is not None:
                return run(arrays, options["out"])
            return run(*arrays)
        except (RuntimeError, ValueError):
            engine.backend(arrays)  # nor devices
            raise

    return call
