"""Rss: the most memory that this process has held, libraries and all."""

from __future__ import annotations

import sys

__all__ = ["peak_rss"]


def peak_rss() -> int:
    """Return the peak resident memory of this process so far, in bytes."""
    import resource  # which not every system has

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
