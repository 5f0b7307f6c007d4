"""Rss: the most memory that this process has held, libraries and all."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["peak_rss"]

_STATUS = Path("/proc/self/status")


def peak_rss() -> int:
    """Return the peak resident memory of this process so far, in bytes."""
    # What getrusage says on Linux is also that of the process that started this one.
    if _STATUS.exists():
        lines = _STATUS.read_text("ascii", "replace").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    import resource  # which not every system has

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
