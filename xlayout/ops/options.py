"""Options: those that every op takes, and checks and conversions of options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypedDict, get_args

from xlayout.algebra.shapes import boolean, one_of
from xlayout.errors import LayoutError
from xlayout.lower.calls import Comm
from xlayout.lower.fill import as_number, is_held
from xlayout.lower.run import check_copy

__all__ = [
    "RUN",
    "Options",
    "by_name",
    "check_memory_options",
    "has_sharding_options",
    "is_plain",
    "plain",
    "refuse_out_and_views",
    "runs_sharded",
    "sharding_options",
]


class Options(TypedDict, total=False):
    """Options that every op takes, besides its own.

    out: array(s) to write the result into (torch and numpy, outside tracing).
    copy: True (default): fresh row-major memory; None: a view where possible; False: a view or an
        error.
    donate: True gives the arrays away: they are empty afterwards, and the result reuses their
        memory where possible. No other array may share that memory.
    comm: for sharded arrays: "auto" (default) moves what has to move, in one exchange; "local"
        raises an error rather than move anything; "native" leaves it to the framework.
    out_sharding: sharding of the result, as for `reshard`; default: one that needs no communication
        if there is one, else the input's.
    in_sharding: sharding of tracers that carry none: on automatic mesh axes, and parts inside
        `shard_map`.
    """

    out: Any
    copy: bool | None
    donate: bool
    comm: Comm
    out_sharding: Any
    in_sharding: Any


RUN = tuple(Options.__annotations__)
_COMM = get_args(Comm)
_SHARDING = ("comm", "out_sharding", "in_sharding")

_PLAIN = (int, str, bool, float, complex, type(None))


def by_name(
    function: str, positional: Sequence[str], args: Sequence[Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Options given by position, under their names: `permute_dims(x, (1, 0))`."""
    if len(args) > len(positional):
        raise TypeError(f"{function}: options are given by name; got {len(args)} by position")
    named = dict(zip(positional, args, strict=False))
    for name in named:
        if name in options:
            raise TypeError(f"{function}: {name} given twice, by position and by name")
    return {**named, **options}


def check_memory_options(out: Any, copy: Any, donate: Any, layout: Callable[[], Any]) -> None:
    """Refuse values of `out`, `copy` and `donate` that are invalid or contradict each other.

    `layout` is called first: a pattern with an axis called `copy` raises a better error.
    """
    boolean(donate, "donate")
    if copy is not None and not isinstance(copy, bool):
        layout()
        check_copy(copy)
    if donate and (out is not None or copy is not True):
        raise LayoutError("donate: True cannot be combined with out= or copy=")


def sharding_options(options: dict[str, Any], layout: Callable[[], Any]) -> dict[str, Any]:
    """The sharding options of a call, without those that are None, the default.

    `layout` is called before a `comm` is refused, as in `check_memory_options`.
    """
    sharding = {name: options[name] for name in _SHARDING if options.get(name) is not None}
    comm = sharding.get("comm", "auto")
    if not isinstance(comm, str) or comm not in _COMM:
        layout()
        one_of("comm", comm, _COMM)
    return sharding


def runs_sharded(sharded: bool | None, sharding: dict[str, Any]) -> bool:
    """Whether a call is sharded: by its arrays, or by its sharding options.

    `sharded` is None if the sharding of an array is unknown; "local" then has to raise an error.
    """
    return (
        bool(sharded)
        or has_sharding_options(sharding)
        or (sharded is None and sharding.get("comm") == "local")
    )


def has_sharding_options(sharding: dict[str, Any]) -> bool:
    """Whether a call has sharding options other than `comm`."""
    return bool(sharding.keys() - {"comm"})


def refuse_out_and_views(out: Any, copy: bool | None) -> None:
    """Refuse `out` and `copy=False`, which a sharded result cannot have.

    Raises:
        TypeError: for `out`.
        BufferError: for `copy=False`.
    """
    if out is not None:
        raise TypeError("out: the result of a sharded op is fresh; leave it out")
    if copy is False:
        raise BufferError(
            "copy=False: the result of a sharded op is no view; use copy=None to allow a copy"
        )


def is_plain(value: Any) -> bool:
    """Whether an option's value can be part of a cache key."""
    return type(value) in _PLAIN or (type(value) is tuple and all(map(is_plain, value)))


def plain(value: Any, depth: int = 4) -> Any:
    """The equivalent plain value, if there is one, of a list or of a concrete array.

    What is nested deeper, as a list in itself is, stays as it is: no op takes it.

    >>> import numpy as np
    >>> plain([np.int8(2), (range(2), np.array([0.5]), "axis")])
    (2, ((0, 1), (0.5,), 'axis'))
    """
    if depth and isinstance(value, (list, tuple, range, Iterator)):
        return tuple([plain(part, depth - 1) for part in value])
    if is_held(value) and hasattr(value, "tolist"):
        # Under a transform `item` raises torch's own error.
        held = value.tolist() if getattr(value, "shape", ()) else as_number(value)
        return value if held is value else plain(held, depth)
    return value
