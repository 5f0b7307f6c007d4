"""Lent: the memory that JAX was lent for reading, such as a mapped file, while it has it.

JAX's arrays do not say so, and whoever adopted one of them would write there.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from typing import Any

__all__ = ["is_lent", "lend"]

_counts: Counter[int] = Counter()
"""Address -> how many times it is lent."""

_given_back: deque[int] = deque()
"""Addresses not counted yet: a finalizer may run anywhere, in the middle of a count too."""

_counting = threading.RLock()  # a handler of signals may lend, too


def lend(memory: Any, address: int) -> None:
    """Count an address as lent until the object that JAX holds on to is gone."""
    with _counting:
        _settle()
        _counts[address] += 1
    weakref.finalize(memory, _given_back.append, address)


def is_lent(address: int) -> bool:
    """Whether somebody still has it.

    >>> import numpy as np
    >>> memory = np.zeros(2)
    >>> lend(memory, 64)
    >>> before = is_lent(64)
    >>> del memory
    >>> before, is_lent(64)
    (True, False)
    """
    with _counting:
        _settle()
        return address in _counts


def _settle() -> None:
    while _given_back:
        address = _given_back.popleft()
        _counts[address] -= 1
        if not _counts[address]:
            del _counts[address]
