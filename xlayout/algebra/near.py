"""Near: which of many boxes another one may meet, found without looking at each.

Boxes that lie side by side are told apart by where they begin and end. Those that repeat with one
stride, as what is put together along a last axis does, lie side by side within it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from xlayout.algebra.join import Side
from xlayout.algebra.piece import span

__all__ = ["near"]

_FEW = 16  # boxes; among so few, all are tried
_NEVER = 1 << 200  # a stride with which nothing repeats


def near(boxes: Sequence[Side]) -> Callable[[Side], Sequence[int]]:
    """A function from a box to the numbers of those of `boxes` that it may meet; all others cannot.

    >>> rows = [(10 * k, 0, ((10, 1, 1),)) for k in range(100)]
    >>> near(rows)((25, 0, ((10, 1, 1),)))
    [2, 3]
    >>> columns = [(k, 0, ((10, 100, 1),)) for k in range(100)]
    >>> near(columns)((25, 0, ((3, 200, 1), (2, 1, 1))))
    [25, 26]
    """
    everyone = range(len(boxes))
    if len(boxes) <= _FEW:
        return lambda _box: everyone
    from bisect import bisect_left, bisect_right  # not loaded by `import xlayout`

    strides = {steps[0][1] if steps else _NEVER for _, _, steps in boxes}
    period = min({_NEVER, *(strides if len(strides) == 1 else ())}, key=lambda p: _crowd(boxes, p))
    placed = sorted((*_place(box, period), k) for k, box in zip(everyone, boxes, strict=True))
    starts = [first for first, _, _ in placed]
    latest = list(accumulate((end for _, end, _ in placed), max))
    numbers = [k for _, _, k in placed]

    def meeting(box: Side) -> Sequence[int]:
        first, end = _place(box, period)
        if end > period:
            return everyone
        return numbers[bisect_right(latest, first) : bisect_left(starts, end)]

    return meeting


def _place(box: Side, period: int) -> tuple[int, int]:
    """Where a box begins and ends, if positions a period apart are one."""
    at, _, steps = box
    first = at % period
    return first, first + span((n, step) for n, step, _ in steps if step % period) + 1


def _crowd(boxes: Sequence[Side], period: int) -> float:
    """How many boxes there are at a position, on average."""
    places = [_place(box, period) for box in boxes]
    last = max(1, *(end for _, end in places))
    return sum(end - first for first, end in places) / last if last <= period else len(boxes)
