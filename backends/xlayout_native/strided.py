"""Strided: one copy between strided buffers as a plan, where the kernel is the faster way.

The rule is from measurements of torch's own copy and this kernel side by side, one thread and two,
16 KB to 64 MB (bench/speed.py prints them for the machine at hand):

- Runs shorter than a line (zip, unzip, rope on activations, transposes): the kernel is up to 90
  times faster, from about 16 KB on; below, a framework's copy has less to set up.
- Longer runs: the framework's copy is a row of memcpys itself, and its threads are awake already.
  The kernel wins where streaming stores and huge pages matter, beyond the caches.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import xlayout_native as native

if TYPE_CHECKING:
    from xlayout_native._copy import Plan

__all__ = ["LARGE", "SMALL", "plan_where_faster"]

SMALL = 1 << 15
"""Bytes below which no copy is worth asking about."""

LARGE = 1 << 24
"""Bytes from which every copy is the kernel's, and a fresh result should be on huge pages."""

LINE = 64
MOST_AXES = 15


@lru_cache(4096)
def plan_where_faster(
    shape: tuple[int, ...],
    sources: tuple[int, ...],
    targets: tuple[int, ...] | None,
    itemsize: int,
) -> Plan | None:
    """The plan of `target[...] = source`, or None where the framework should copy.

    Args:
        shape: of both.
        sources: element strides of what is read.
        targets: element strides of what is written; None for row-major.
        itemsize: bytes of an element.

    >>> plan_where_faster((2, 2), (2, 1), None, 4) is None  # too small
    True
    """
    if not native.available or len(shape) > MOST_AXES:
        return None
    loops = tuple(zip(shape, sources, targets or _row_major(shape), strict=True))
    run = 1
    for n, x, z in sorted(loops, key=lambda loop: loop[2]):
        if n > 1 and (x, z) != (run, run):
            break
        run *= n
    size = itemsize
    for n in shape:
        size *= n
    if size < SMALL or (run * itemsize >= LINE and size < LARGE):
        return None
    return native.prepare([(0, 0, (0, 0, loops))], itemsize, 1, 1)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))
