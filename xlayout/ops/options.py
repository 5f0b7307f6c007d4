"""Options: those of an op itself, by which its calls are told apart, and those of every op."""

from __future__ import annotations

from numbers import Integral, Rational, Real
from typing import Any

__all__ = ["COMM", "RUN", "WHERE", "is_plain", "plain", "says_where"]

COMM = ("auto", "local", "native")
WHERE = ("comm", "out_sharding", "in_sharding")
RUN = ("out", "copy", "donate", *WHERE)
"""What every op takes, besides its own options; see `Run`."""

_PLAIN = (int, str, bool, float, type(None))


def says_where(where: dict[str, Any]) -> bool:
    """Whether it is said how arrays lie; of what makes no sense too, which is refused there."""
    return bool(where.keys() - {"comm"}) or where.get("comm", "auto") not in COMM


def is_plain(value: Any) -> bool:
    """Whether a call is found by this value of an option."""
    return type(value) in _PLAIN or (type(value) is tuple and all(map(is_plain, value)))


def plain(value: Any) -> Any:
    """The plain value that means the same, if there is one: of a list, or a number of numpy's.

    >>> import numpy as np
    >>> plain([np.int8(2), (np.float64(0.5), "axis")])
    (2, (0.5, 'axis'))
    """
    if type(value) in (list, tuple):
        return tuple(map(plain, value))
    if type(value) in _PLAIN or not isinstance(value, Real):
        return value
    if isinstance(value, Integral):
        return int(value)
    return value if isinstance(value, Rational) else float(value)
