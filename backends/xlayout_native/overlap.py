"""Overlap: whether strided arrays share memory, told from addresses and strides in bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Extent", "conflict", "extent", "may_meet", "meets", "meets_itself"]

_FEW = 16  # arrays; that few are compared with one another sooner than sorted


class Extent(NamedTuple):
    """The memory of an array.

    Args:
        first: the lowest address.
        width: bytes of an element; 0 of an array without any.
        steps: (stride, count) of its axes, the shortest first; all forward.
    """

    first: int
    width: int
    steps: tuple[tuple[int, int], ...]

    def reach(self, below: float = math.inf) -> int:
        """Bytes from the first to the last, by strides below a bound."""
        return self.width + sum((n - 1) * step for step, n in self.steps if step < below)


def extent(address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Extent:
    """The memory of an array whose first element is at an address; strides in bytes.

    >>> extent(108, (3, 2), (-4, 16), 4)
    Extent(first=100, width=4, steps=((4, 3), (16, 2)))
    """
    if 0 in shape:
        return Extent(address, 0, ())
    axes = [(step, n) for n, step in zip(shape, strides, strict=True) if n > 1]
    first = address + sum((n - 1) * step for step, n in axes if step < 0)
    return Extent(first, itemsize, tuple(sorted((abs(step), n) for step, n in axes)))


def conflict(out: Extent, inputs: Iterable[Extent]) -> str | None:
    """Why a result cannot be written there, or None.

    >>> conflict(extent(0, (4,), (4,), 4), [extent(8, (4,), (4,), 4)])
    'it overlaps an input'
    """
    if meets_itself(out):
        return "its elements share memory"
    if any(may_meet(out, x) for x in inputs):
        return "it overlaps an input"
    return None


def meets_itself(x: Extent) -> bool:
    """Whether some axis steps onto what shorter steps already reach.

    >>> meets_itself(extent(0, (3, 2), (8, 4), 4)), meets_itself(extent(0, (3, 2), (4, 4), 4))
    (False, True)
    """
    reach = x.width
    for step, n in x.steps:
        if step < reach:
            return True
        reach += (n - 1) * step
    return False


def may_meet(x: Extent, z: Extent) -> bool:
    """Whether two arrays may share a byte; False is certain.

    Whatever the longer strides do, they move by multiples of their greatest common divisor. So the
    two are apart if, modulo that, the runs that the shorter strides span are. Columns of one matrix
    are told apart by its rows' stride.

    >>> left, right = (extent(at, (9, 8), (64, 4), 4) for at in (0, 32))  # of 9 rows of 64 bytes
    >>> may_meet(left, right), may_meet(left, extent(28, (9, 8), (64, 4), 4))
    (False, True)
    """
    if not x.width or not z.width:
        return False
    gap = z.first - x.first
    if gap >= x.reach() or -gap >= z.reach():
        return False
    steps = sorted({step for step, _ in (*x.steps, *z.steps) if step})
    for k, step in enumerate(steps):
        apart = math.gcd(*steps[k:])
        if gap % apart >= x.reach(step) and -gap % apart >= z.reach(step):
            return False
    return True


def meets(addresses: Sequence[int], nbytes: Sequence[int], inputs: int) -> bool:
    """Whether a row-major result shares memory with an input or another result; inputs come first.

    >>> meets((0, 4, 8), (8, 4, 4), 2), meets((0, 8, 12), (8, 8, 4), 1)
    (False, True)
    """
    if len(addresses) > _FEW:
        return _meets_sorted(addresses, nbytes, inputs)
    for k in range(inputs, len(addresses)):
        first = addresses[k]
        last = first + nbytes[k]
        for other in range(k):
            if addresses[other] < last and first < addresses[other] + nbytes[other]:
                return True
    return False


def _meets_sorted(addresses: Sequence[int], nbytes: Sequence[int], inputs: int) -> bool:
    """The same, in a time that grows with their number."""
    read = written = 0  # where what lies before ends
    for first, size, k in sorted(zip(addresses, nbytes, range(len(addresses)), strict=True)):
        if size and first < (written if k < inputs else max(read, written)):
            return True
        if k < inputs:
            read = max(read, first + size)
        else:
            written = max(written, first + size)
    return False
