"""Machine: what figures depend on besides the code, and how many of its processors to use."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import xlayout_native

__all__ = ["busy", "machine", "processors", "use_threads"]

_PACKAGES = ("torch", "jax", "numpy", "einops")


def machine(threads: int | None = None) -> dict[str, str]:
    """Processor, system, and the versions of everything that takes part.

    >>> sorted(machine(1))[:4]
    ['copy kernel', 'cores', 'cpu', 'einops']
    """
    found = {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        "copy kernel": xlayout_native.get_isa() if xlayout_native.available else "not in use",
    }
    return found if threads is None else {**found, "threads": str(threads)}


def processors() -> int:
    """The number of processors this process may run on.

    >>> processors() >= 1
    True
    """
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def use_threads(count: int) -> None:
    """Limit this process to `count` threads of work, whichever framework does it.

    To be called before a framework is imported: XLA counts processors once. If the system can pin
    processes to processors, this one is pinned; otherwise OMP_NUM_THREADS and the kernel's own
    limit are set, and nothing else.

    Raises:
        ValueError: if `count` is below 1, or above the number of processors.
    """
    if not 1 <= count <= processors():
        raise ValueError(f"threads: {count}; this machine has 1 to {processors()}")
    os.environ["OMP_NUM_THREADS"] = str(count)
    if count < processors() and sys.platform == "linux":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
    if xlayout_native.available:
        xlayout_native.set_threads(count)
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(count)


def busy() -> str | None:
    """A warning if other work is running, which lengthens wall-clock times of several threads.

    >>> busy() is None or "load" in busy()
    True
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load < 0.5:
        return None
    return f"load {load:.1f} on {processors()} processors: figures are for a quiet machine"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
