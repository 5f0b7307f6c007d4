"""Rss: the memory of this process that is resident, libraries and all."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["PROCESS", "peak_rss", "resident"]

PROCESS = Path("/proc/self")


def peak_rss() -> int:
    """Return the peak resident memory of this process so far, in bytes."""
    # On Linux, what getrusage says includes the peak of the process that started this one.
    if PROCESS.exists():
        return resident("VmHWM")
    import resource  # which not every system has

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident(field: str) -> int:
    """Bytes of a field of /proc/self/status: VmRSS is held now, VmHWM the peak since its reset."""
    lines = (PROCESS / "status").read_text("ascii", "replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
