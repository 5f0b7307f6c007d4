"""Side: the input or the output of a tile, as what lies side by side in its memory, and how far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["VECTOR", "Loop", "Side", "axes_in_run", "reach_of", "side_of"]

Loop = tuple[int, int, int]
"""(n, in stride, out stride)."""

VECTOR = 16
"""Bytes of the widest access."""

FAR = 1 << 31
"""Units from which a position within a tile is not held in 32 bits."""


def axes_in_run(side: int, axes: Sequence[tuple[Loop, int]], unit: int) -> int:
    """How many axes, counted from the last, are one run of memory within a tile."""
    (length, _, _), size = axes[3]
    run, whole = 1, length == size
    for axis, size in reversed(axes[:3]):
        n = axis[0]
        if not whole or (n > 1 and axis[side] != length * unit):
            break
        run, whole, length = run + 1, n == size, length * n
    return run


def reach_of(side: int, axes: Sequence[tuple[Loop, int]], unit: int) -> int:
    """Bytes that lie side by side within a tile, whether or not it is wider than what they fill."""
    reach, whole = unit, True
    for axis, size in reversed(axes):
        n = axis[0]
        if not whole or (n > 1 and axis[side] != reach):
            break
        reach, whole = reach * min(n, size), n <= size
    return reach


@dataclass(frozen=True, slots=True)
class Side:
    """The input's or the output's part of the words: strides in memory order, 0 within the run."""

    vector: int
    offset: int
    strides: tuple[int, int, int]
    length: int
    outer: tuple[int, ...]
    wide: bool


def side_of(
    side: int,
    axes: Sequence[tuple[Loop, int]],
    run: int,
    outer: Sequence[Loop],
    offset: int,
    aligned: int,
    unit: int,
) -> Side:
    """One side of a cut, from its four axes in memory order, each with its size in a tile."""
    length = unit * math.prod(axis[0] for axis, _ in axes[4 - run :])
    size = unit * math.prod(size for _, size in axes[4 - run :])
    apart = [axis[side] if k < 4 - run else 0 for k, (axis, _) in enumerate(axes[:3])]
    further = [axis[side] for axis in outer]
    by = math.gcd(VECTOR, aligned, offset, *apart, *further, length, size)
    reach = sum((size - 1) * abs(step) for (_, size), step in zip(axes, apart, strict=False))
    return Side(
        by // unit,
        offset // by,
        (apart[0] // by, apart[1] // by, apart[2] // by),
        length // by,
        tuple(step // by for step in further),
        (reach + size) // unit >= FAR,
    )
