"""Native: strided copies between buffers at the speed of memcpy, where there was a compiler.

`available` says whether the compiled half is there. Without it nothing else here is to be called,
and whoever asks uses the framework's own copies. Three variables of the environment are read once:

XLAYOUT_NATIVE=off                do without, although it is compiled
XLAYOUT_ISA=plain|avx2|neon|...   the kernels to run, one of `get_isas()`, in place of the widest
OMP_NUM_THREADS                   threads, in place of one per processor
"""

from __future__ import annotations

import os
import warnings

_asked = os.environ.get("XLAYOUT_NATIVE") or "auto"
if _asked not in ("auto", "require", "off"):  # "require" is for the build
    warnings.warn(f"XLAYOUT_NATIVE: {_asked!r}; wanted 'off' or nothing", stacklevel=2)

try:
    if _asked == "off":
        raise ImportError("switched off by XLAYOUT_NATIVE=off")
    from xlayout_native._copy import (
        address,
        ffi_handler,
        get_intel,
        get_isa,
        get_isas,
        get_threads,
        huge_pages,
        prepare,
        run,
        run_arrays,
        run_in_place,
        set_intel,
        set_isa,
        set_threads,
        set_thresholds,
        share_threads,
        threads_awake,
    )
except ModuleNotFoundError:
    available = False
    _reason = "not compiled, for which installation needs a C compiler and Python's headers"
except ImportError as error:
    available = False
    _reason = str(error)
else:
    available = True
    if _wanted := os.environ.get("XLAYOUT_ISA"):  # as everywhere, empty is unset
        try:
            set_isa(_wanted)
        except ValueError:  # set for another machine, perhaps: no reason not to start
            has = ", ".join(get_isas())
            warnings.warn(f"XLAYOUT_ISA: {_wanted!r}; this machine has {has}", stacklevel=2)

__all__ = [
    "address",
    "available",
    "ffi_handler",
    "get_intel",
    "get_isa",
    "get_isas",
    "get_threads",
    "huge_pages",
    "prepare",
    "run",
    "run_arrays",
    "run_in_place",
    "set_intel",
    "set_isa",
    "set_threads",
    "set_thresholds",
    "share_threads",
    "status",
    "threads_awake",
]


def status() -> str:
    """One line about the copy kernel: at work, and how, or why it is not.

    >>> status().startswith("compiled" if available else "not in use")
    True
    """
    if not available:
        return f"not in use: {_reason}"
    threads = get_threads()
    xla = "" if ffi_handler() is None else ", for XLA too"
    return f"compiled{xla}, {get_isa()}, {threads} thread{'' if threads == 1 else 's'}"
