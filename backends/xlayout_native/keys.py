"""Keys: a cache of functions, looked up by the type, shape and options of a call.

`find_by_shape(runs, x, args, options)` returns the function kept for such calls, or None;
`keep_by_shape(..., run)` adds one. If `args` is None, `x` is a tuple of arrays, which must agree in
type and dtype. The "by place" variants use the type of an array's sharding instead of its shape,
and dtypes may differ; `keep_by_place(..., run, anywhere)` with `anywhere` true serves any sharding.

Equal numbers may mean different things (2.0 is not a valid block, -0.0 is another fill than 0), so
floats, complex numbers and bools are in the key with their type; a call with any other object among
its options is not cached. The key says whether `out` is given, not which array it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import xlayout_native as native

__all__ = ["find_by_place", "find_by_shape", "keep_by_place", "keep_by_shape"]

_Runs = dict[Any, Callable[..., Any]]


def _key(x: Any, args: Any, options: dict[str, Any], place: bool) -> tuple[Any, ...] | None:
    """(type, shape, args, name, value, name, value, ...), or None.

    >>> import numpy as np
    >>> _key(np.zeros((2, 3)), (), {"axis": 1}, False)[1:]
    ((2, 3), (), 'axis', 1)
    >>> _key((np.zeros(2), np.ones(3)), None, {}, False)[1:]
    (((2,), (3,)), None)
    >>> _key(np.zeros(2), (), {"value": -0.0}, False)[3:]
    ('value', (<class 'float'>, '-0.0'))
    """
    arrays = (x,) if args is not None else x
    if not arrays or not _plain(args):
        return None
    named: list[Any] = []
    for name, value in options.items():
        if name == "out" and value is not None:
            named += name, True  # no other value is a bool without its type
        elif _plain(value):
            named += name, value
        elif type(value) in (float, complex, bool):
            named += name, (type(value), repr(value))
        else:
            return None
    try:
        marks = tuple([type(a.sharding) if place else a.shape for a in arrays])
        kinds = {(type(a), None if place else a.dtype) for a in arrays} if args is None else {None}
        hash(marks)
    except (AttributeError, RuntimeError, TypeError):
        return None
    if len(kinds) > 1:
        return None
    return (type(arrays[0]), marks if args is None else marks[0], args, *named)


def _plain(value: Any, depth: int = 16) -> bool:
    if type(value) is tuple:
        return depth > 0 and all(_plain(part, depth - 1) for part in value)
    return value is None or type(value) is int or type(value) is str


def _find(place: bool, runs: _Runs, x: Any, args: Any, options: dict[str, Any], /) -> Any:
    key = _key(x, args, options, place)
    return None if key is None else runs.get(key)


def _keep(
    place: bool,
    runs: _Runs,
    x: Any,
    args: Any,
    options: dict[str, Any],
    run: Callable[..., Any],
    _anywhere: bool = False,
    /,
) -> None:
    key = _key(x, args, options, place)
    if key is not None:
        runs[key] = run


_find_by_shape, _find_by_place = partial(_find, False), partial(_find, True)
_keep_by_shape, _keep_by_place = partial(_keep, False), partial(_keep, True)

if native.available:
    from xlayout_native._copy import find_by_place as find_by_place
    from xlayout_native._copy import find_by_shape as find_by_shape
    from xlayout_native._copy import keep_by_place as keep_by_place
    from xlayout_native._copy import keep_by_shape as keep_by_shape
else:
    find_by_place, find_by_shape = _find_by_place, _find_by_shape
    keep_by_place, keep_by_shape = _keep_by_place, _keep_by_shape
