"""Harmful: cases that end their process in every bad way, between two that do no harm."""

from __future__ import annotations

import atexit
import os
import signal
import time

from bench.gpu.case import case


@case()
def fine() -> str:
    """Does nothing."""
    return "well"


@case()
def untrue() -> str:
    """Breaks its promise."""
    raise AssertionError("two is\nnot three")


@case()
def raises() -> str:
    """Raises what CUDA raises, advice and all."""
    raise RuntimeError("CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA`")


@case()
def dies() -> str:
    """Is killed."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"


@case()
def sleeps() -> str:
    """Never answers."""
    time.sleep(60)
    return "too late"


@case()
def leaves() -> str:
    """Answers, and crashes when its process ends."""
    atexit.register(os.abort)
    return "on its way"


@case()
def naps() -> str:
    """Takes its time."""
    time.sleep(1.5)
    return "rested"


@case()
def also_fine() -> str:
    """Comes after the others."""
    return "well, too"
