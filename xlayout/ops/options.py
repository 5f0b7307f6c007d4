"""Options: those of an op itself, by which its calls are told apart, and those of every op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypedDict, get_args

from xlayout.lower.calls import Comm
from xlayout.lower.fill import HOLDERS
from xlayout.lower.run import check_copy

__all__ = [
    "COMM",
    "RUN",
    "Options",
    "by_name",
    "check_place",
    "is_plain",
    "plain",
    "refuse_memory",
    "runs_sharded",
    "said_of_place",
    "says_where",
]


class Options(TypedDict, total=False):
    """Options that every op takes, besides its own.

    out: array(s) to write the result into (torch and numpy, outside tracing).
    copy: True (default) fresh row-major memory; None a view where possible; False a view or an
        error.
    donate: True gives the arrays away: they are empty afterwards, and the result takes their memory
        where it can. Nobody else may hold that memory under another name.
    comm: for arrays that many devices hold: "auto" (default) moves what must move, in one exchange;
        "local" refuses to move anything; "native" leaves it to the framework.
    out_sharding: how a sharded result is to lie, as for `reshard`; by default where the data falls.
    in_sharding: how inputs lie that cannot know it themselves, inside `jit` on automatic axes.
    """

    out: Any
    copy: bool | None
    donate: bool
    comm: Comm
    out_sharding: Any
    in_sharding: Any


RUN = tuple(Options.__annotations__)
COMM = get_args(Comm)
_WHERE = ("comm", "out_sharding", "in_sharding")

_PLAIN = (int, str, bool, float, complex, type(None))


def by_name(
    function: str, positional: Sequence[str], args: Sequence[Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Options given by position, under their names: `permute_dims(x, (1, 0))`."""
    if len(args) > len(positional):
        raise TypeError(f"{function}: options are given by name; {len(args)} by position")
    named = dict(zip(positional, args, strict=False))
    for name in named:
        if name in options:
            raise TypeError(f"{function}: {name} given twice, by position and by name")
    return {**named, **options}


def check_place(out: Any, copy: Any, donate: Any, layout: Callable[[], Any]) -> None:
    """Refuse what says nothing, or two things, about the memory of a result.

    `layout` makes the layout, or refuses to: of an axis called `copy` a pattern says so better.
    """
    if not isinstance(donate, bool):
        raise TypeError(f"donate: {donate!r}; wanted True or False")
    if copy is not None and not isinstance(copy, bool):
        layout()
        check_copy(copy)
    if donate and (out is not None or copy is not True):
        raise ValueError("donate: True cannot be combined with out= or copy=")


def said_of_place(options: dict[str, Any]) -> dict[str, Any]:
    """The options that say how arrays lie, without those that are None, as by default."""
    return {name: options[name] for name in _WHERE if options.get(name) is not None}


def runs_sharded(spread: bool | None, where: dict[str, Any]) -> bool:
    """Whether a call is one on many devices: by its arrays, or by what is said of it.

    `spread` is None where nobody knows how an array lies; "local" then has to refuse.
    """
    return bool(spread) or says_where(where) or (spread is None and where.get("comm") == "local")


def says_where(where: dict[str, Any]) -> bool:
    """Whether it is said how arrays lie; of what makes no sense too, which is refused there."""
    return bool(where.keys() - {"comm"}) or where.get("comm", "auto") not in COMM


def refuse_memory(out: Any, copy: bool | None) -> None:
    """Refuse what is said of the memory of a result that many devices hold.

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
    """Whether a call is found by this value of an option."""
    return type(value) in _PLAIN or (type(value) is tuple and all(map(is_plain, value)))


def plain(value: Any) -> Any:
    """The plain value that means the same, if there is one: of a list, or of what an array holds.

    >>> import numpy as np
    >>> plain([np.int8(2), (range(2), np.array([0.5]), "axis")])
    (2, ((0, 1), (0.5,), 'axis'))
    """
    if isinstance(value, (list, tuple, range, Iterator)):
        return tuple(map(plain, value))
    held = type(value).__module__ in HOLDERS and hasattr(value, "tolist")
    return plain(value.tolist()) if held else value
