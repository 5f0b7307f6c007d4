"""Options: those of an op itself, by which its calls are told apart, and those of every op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["COMM", "RUN", "WHERE", "is_plain", "plain", "says_where"]

COMM = ("auto", "local", "native")
WHERE = ("comm", "out_sharding", "in_sharding")
RUN = ("out", "copy", "donate", *WHERE)
"""What every op takes, besides its own options; see `xlayout.ops.op.Run`."""

_PLAIN = (int, str, bool, float, complex, type(None))


def says_where(where: dict[str, Any]) -> bool:
    """Whether it is said how arrays lie; of what makes no sense too, which is refused there."""
    return bool(where.keys() - {"comm"}) or where.get("comm", "auto") not in COMM


def is_plain(value: Any) -> bool:
    """Whether a call is found by this value of an option."""
    return type(value) in _PLAIN or (type(value) is tuple and all(map(is_plain, value)))


def plain(value: Any) -> Any:
    """The plain value that means the same, if there is one: of a list, or of what numpy holds.

    >>> import numpy as np
    >>> plain([np.int8(2), (range(2), np.array([0.5]), "axis")])
    (2, ((0, 1), (0.5,), 'axis'))
    """
    if isinstance(value, (list, tuple, range, Iterator)):
        return tuple(map(plain, value))
    return plain(value.tolist()) if type(value).__module__ == "numpy" else value
