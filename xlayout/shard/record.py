"""Record: a function on sharded arrays as one call of the graph that torch.compile records.

Otherwise Dynamo would trace all the code that makes a plan. Given the plan, what remains are plain
ops and a collective, which the compiler sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xlayout.errors import ShapeError
from xlayout.registry import backend_of

__all__ = ["recorded"]


def recorded(function: Callable[..., Any], arrays: Sequence[Any], *static: Any) -> Any:
    """`function(arrays, *static)`; `static` becomes constants of the graph.

    Raises:
        ShapeError: for no arrays.
    """
    if not arrays:
        raise ShapeError("x: no arrays; give at least one")
    record = getattr(backend_of(arrays[0]), "record", None)
    if record is None or not record.recording():
        return function(arrays, *static)
    return record.recorded(function, arrays, *static)
