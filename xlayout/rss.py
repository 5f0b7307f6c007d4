"""The resident memory of this process, including its libraries."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["forget_peak", "peak_rss", "resident"]

_PROCESS = Path("/proc/self")


def peak_rss() -> int:
    """Return the peak resident memory of this process so far, in bytes."""
    # On Linux, getrusage's figure includes the peak of the parent process.
    if _PROCESS.exists():
        return resident("VmHWM")
    import resource  # not available on every system

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak() -> None:
    """Reset the peak to what is resident now.

    Raises:
        OSError: The system cannot do that; only Linux can.
    """
    (_PROCESS / "clear_refs").write_text("5", "ascii")  # proc(5)


def resident(field: str) -> int:
    """Bytes in a field: VmRSS is resident now, VmHWM the most so far, or since `forget_peak`."""
    lines = (_PROCESS / "status").read_text("ascii", "replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
