"""Peak: the most memory that one call held beyond what was there before it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from xlayout.rss import forget_peak, resident

__all__ = ["peak_of"]


def peak_of(call: Callable[[], Any], finish: Callable[[Any], object]) -> int | None:
    """Resident bytes at the call's peak, over those before it.

    The result counts. None if the high-water mark cannot be reset, which takes Linux. Small amounts
    do not show if an allocator serves them from memory it kept.

    >>> peak = peak_of(lambda: b"x" * (1 << 26), lambda _made: None)
    >>> peak is None or peak > 60 << 20
    True
    """
    gc.collect()
    try:
        before = resident("VmRSS")
        forget_peak()
    except OSError:
        return None
    finish(call())
    return max(0, resident("VmHWM") - before)
