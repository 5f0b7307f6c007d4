"""Shape: which axes a tile spans, how many units along each, and how its sides order them.

Where the innermost loop of a side is shorter than a line, as that of two steps in
`(h two n) d -> d (h n two)`, axis r is the loop that continues it there, and next to it in the
order of that side: (a, r, b, c) in the output, of which all but a are one run, or (b, r, a, c) in
the input. A tile then has as much of both as makes a line, where a row has that.

Where those of both sides are short, and elements lie side by side there, but not in the same order,
as those of q and c in `b c (h p) (w q) -> b (h w) (p q c)`, axis c is the loop that comes next in
the input, and r the one that comes next in the output. Each may come after both of them: that is w
and p here. Either side has all four in the order of its memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlayout_triton.side import Loop

__all__ = ["LINE", "NO_AXIS", "USUAL", "Four", "shape_of"]

LINE = 128
"""Bytes that the threads of a warp should find side by side."""

WASTE = 1.25
"""Threads that may be there for each that has work, so that a tile can be larger."""

NO_AXIS: Loop = (1, 0, 0)

Four = tuple[int, int, int, int]

Axes = tuple[Loop, Loop, Loop, Loop]

_RBAC, _RABC, _BRAC, _ARBC = (0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 2, 3), (2, 0, 1, 3)

USUAL = _RBAC, _RABC
"""The orders of a tile's sides where r continues neither a nor b."""


def shape_of(
    axes: Sequence[Loop], run: int, unit: int, room: int
) -> tuple[Axes, Four, tuple[Four, Four]]:
    """The axes r, b, a and c, the sizes of a tile of `room` units along them, and its orders.

    Args:
        axes: by out stride, the largest first; strides in bytes.
        run: units that lie side by side on both sides.
        unit: bytes of one.
        room: units of a tile.

    >>> rope = (32, 1048576, 256), (128, 4096, 2), (2, 524288, 1)
    >>> shape_of(((4096, 1, 8192), *rope), 1, 1, 1 << 15)[1:]
    ((128, 2, 128, 1), ((0, 1, 2, 3), (2, 0, 1, 3)))
    """
    c: Loop = run, unit, unit
    if not axes:  # one kernel for runs of whatever length
        return (NO_AXIS, NO_AXIS, NO_AXIS, c), (1, 1, 1, room), (_RABC, _RABC)
    line = LINE // unit
    tc = _fit(run, room, line)
    room //= tc
    least = max(1, line // tc)
    b = axes[-1]
    a = min((axis for axis in axes if axis[1]), key=lambda axis: abs(axis[1]), default=b)
    if run >= line or a is b:
        a = NO_AXIS
    left = [axis for axis in axes if axis is not b and axis is not a]
    if a[1] == unit == b[2] and max(a[0], b[0]) < line:
        out, into = _next(2, b, a, left), _next(1, a, b, left)
        if out and into and out is not into:
            return _of_short_loops((out, b, a, into), unit, room)
    r = left[-1] if left else NO_AXIS
    if b[0] >= least:  # the output does not need it
        r = next((axis for axis in left if _continues(1, a, axis, least)), r)
    on_a, on_b = _continues(1, a, r, least), a[0] > 1 and _continues(2, b, r, least)
    # What r has at least: enough for a line with the axis that it continues.
    few = 1 << ((least - 1) // (b if on_b else a)[0]).bit_length() if on_a or on_b else 1
    half = 1 << room.bit_length() // 2
    tb = _fit(b[0], half, least)
    ta = _fit(a[0], room // (half if on_b else tb), least)
    tr = _fit(r[0], room // (ta * tb), few) if on_a or on_b else 1
    ta = _fit(a[0], room // (tb * tr), least)
    tb = _fit(b[0], room // (ta * tr), least)
    sizes = _fit(r[0], room // (ta * tb), few), tb, ta, tc
    written = _ARBC if on_b else _RABC
    return (r, b, a, c), sizes, (_BRAC if on_a else _RBAC if ta > 1 else written, written)


def _next(side: int, first: Loop, other: Loop, left: Sequence[Loop]) -> Loop | None:
    """The loop that continues the first one on a side, or the first one and the other."""
    reach = first[0] * first[side]
    if other[side] == reach:
        reach *= other[0]
    return next((axis for axis in left if axis[side] == reach), None)


def _of_short_loops(axes: Axes, unit: int, room: int) -> tuple[Axes, Four, tuple[Four, Four]]:
    """What `shape_of` returns: r and c have at least what makes a line with what is before them."""
    r, b, a, c = axes
    line = LINE // unit
    few, some = (1 << ((LINE - 1) // reach).bit_length() for reach in (r[2], c[1]))
    tb = _fit(b[0], 1 << room.bit_length() // 2, line)
    ta = _fit(a[0], room // tb, line)
    tc = _fit(c[0], max(1, room // (ta * tb * few)), some)
    tr = _fit(r[0], room // (ta * tb * tc), few)
    return axes, (tr, tb, ta, tc), (_order(1, axes), _order(2, axes))


def _order(side: int, axes: Axes) -> Four:
    """The axes as a side's memory has them; what it repeats is first."""
    strides = [abs(axis[side]) or math.inf for axis in axes]
    first, second, third, last = sorted(range(4), key=lambda k: -strides[k])
    return first, second, third, last


def _continues(side: int, axis: Loop, r: Loop, least: int) -> bool:
    """Whether an axis has fewer steps than make a line, and r continues it, on one side."""
    return 1 < axis[0] < least and r[side] == axis[0] * axis[side]


def _fit(n: int, most: int, least: int) -> int:
    """A power of two for a tile along `n` elements: the largest that wastes few threads."""
    size = min(most, 1 << (n - 1).bit_length())
    choices = [size]
    while size > least:
        size //= 2
        choices.append(size)
    wastes = [-(-n // size) * size / n for size in choices]
    return next(
        (size for size, waste in zip(choices, wastes, strict=True) if waste <= WASTE),
        choices[wastes.index(min(wastes))],
    )
