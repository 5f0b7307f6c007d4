"""Keys: what finds a recipe again, the type, shape and options of a call as one tuple."""

from __future__ import annotations

from typing import Any

import xlayout_native as native

__all__ = ["key_of_many", "key_of_one"]


def _key_of_one(x: Any, args: tuple[Any, ...], options: dict[str, Any], /) -> tuple[Any, ...]:
    """(type, shape, args, name, value, name, value, ...).

    >>> import numpy as np
    >>> _key_of_one(np.zeros((2, 3)), (), {"axis": 1})[1:]
    ((2, 3), (), 'axis', 1)
    """
    return (type(x), x.shape, args, *[part for option in options.items() for part in option])


def _key_of_many(arrays: tuple[Any, ...], options: dict[str, Any], /) -> tuple[Any, ...] | None:
    """The same for arrays of one type and dtype; None where they are not, or one is no array.

    >>> import numpy as np
    >>> _key_of_many((np.zeros(2), np.ones(3)), {})[1:]
    (((2,), (3,)), None)
    >>> _key_of_many((np.zeros(2), np.ones(2, np.int8)), {}) is None
    True
    """
    cls, dtype, shapes = type(arrays[0]), getattr(arrays[0], "dtype", None), []
    for x in arrays:
        if type(x) is not cls or getattr(x, "dtype", dtype) != dtype or not hasattr(x, "shape"):
            return None
        shapes.append(x.shape)
    return (cls, tuple(shapes), None, *[part for option in options.items() for part in option])


if native.available:
    from xlayout_native._copy import key_of_many as key_of_many
    from xlayout_native._copy import key_of_one as key_of_one
else:
    key_of_one, key_of_many = _key_of_one, _key_of_many
