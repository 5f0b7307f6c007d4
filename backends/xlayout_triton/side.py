"""Side: the input or the output of a tile, as what lies side by side in its memory, and how far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["FAR", "VECTOR", "Loop", "Side", "chained", "side_of"]

Loop = tuple[int, int, int]
"""(n, in stride, out stride)."""

VECTOR = 16
"""Bytes of the widest access."""

FAR = 1 << 31
"""Units from which a position within a tile is not held in 32 bits."""


def chained(
    side: int, axes: Sequence[tuple[Loop, int]], unit: int, *, padded: bool
) -> tuple[int, int]:
    """How many axes, counted from the last, follow one another in a tile's memory, and their bytes.

    Args:
        side: 1 for the input, 2 for the output.
        axes: each with its size in a tile.
        unit: bytes of what the sizes count.
        padded: whether a tile may be wider than an axis that others follow.
    """
    count, reach, whole = 0, unit, True
    for axis, size in reversed(axes):
        n = axis[0]
        if not whole or (n > 1 and axis[side] != reach):
            break
        count, reach, whole = count + 1, reach * min(n, size), padded or n == size
    return count, reach


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
