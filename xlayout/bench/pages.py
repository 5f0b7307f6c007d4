"""Pages: free memory that the host backs, for calls that are timed to allocate from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

__all__ = ["Stock"]

PAGE = 4096
"""Bytes of the smallest page there is."""


class Stock:
    """Memory that is held, so that its pages stay backed, and freed for the duration of a call.

    The host of a virtual machine takes back pages that have been free for some seconds. Whoever
    gets such a page next waits until the host provides it again, which takes some twenty times as
    long as clearing it. The first call after a pause would be charged for the host's time.

    >>> stock = Stock(1 << 20)
    >>> with stock.free():
    ...     x = np.ones(1 << 20, np.uint8)
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._hold()

    @contextmanager
    def free(self) -> Iterator[None]:
        """Free the pages inside the block, where the next allocation gets them first."""
        del self._held
        try:
            yield
        finally:
            self._hold()

    def _hold(self) -> None:
        self._held = np.empty(self._size, np.uint8)
        self._held[::-PAGE] = 1  # from the end backwards: systems clear huge pages sooner that way
