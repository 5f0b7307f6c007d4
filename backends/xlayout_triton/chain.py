"""Chain: launches of the Triton kernel that are started before what came before them has ended.

A first link is started while what came before it on the stream still runs: it finds its place in
the table meanwhile, and waits before it touches anything else. Only then does it let the next link
start. A further link is another launch of the same plan. It needs nothing of the one before it,
since they write different places, and waits only at its end. There it has to: whoever waits for the
last launch waits for all of them.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from xlayout_triton.plan import FIRST, FURTHER

__all__ = ["begin", "end", "wait"]

_FIRST = tl.constexpr(FIRST)
_FURTHER = tl.constexpr(FURTHER)


@triton.jit
def begin(LINK: tl.constexpr):
    """What a program does first."""
    if LINK == _FURTHER:
        gdc_launch_dependents()


@triton.jit
def wait(LINK: tl.constexpr):
    """What it does before it touches what it copies.

    And before it computes pointers, which would take up registers during the wait.
    """
    if LINK == _FIRST:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def end(LINK: tl.constexpr):
    """What every program does last, or a launch could end before the one before it has."""
    if LINK == _FURTHER:
        gdc_wait()
