"""Segments: unequal parts of an axis, dealt out group by group.

`[s0 | s1 | ...] -> per group, the 1/groups part of every s`. Tensor-parallel packing of fused
weights, grouped QKV and GLU interleaving are all this one map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

from xlayout.algebra import Layout, Piece
from xlayout.algebra.shapes import Shape, axis_of, divide, integer, integers
from xlayout.errors import SizeError
from xlayout.ops.along import along
from xlayout.ops.op import one_to_one
from xlayout.ops.options import Options

__all__ = ["dealt", "regroup", "ungroup"]


@one_to_one()
def regroup(
    shape: Shape,
    /,
    *,
    sizes: Sequence[int],
    groups: int,
    axis: int = 0,
    **_options: Unpack[Options],
) -> Layout:
    """`[s0 | s1 | ...] -> [group 0: its part of s0, of s1, ... | group 1: ... ]`.

    With `groups` = tensor-parallel size, every rank's shard of a fused weight becomes one
    contiguous slice. `interleave(block=k)` of two halves F is `regroup(sizes=(F, F), groups=F //
    k)`.

    Args:
        shape: any array whose `axis` is the sum of `sizes`.
        sizes: elements of each segment; they may differ.
        groups: how many groups; it must divide every size.
        axis: the axis to reorder.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        SizeError: when the sizes do not add up to the axis, or `groups` does not divide one.
        AxisError: when the array has no such axis.

    >>> import numpy as np
    >>> regroup(np.array([0, 1, 2, 3, 10, 11, 20, 21]), sizes=(4, 2, 2), groups=2)
    array([ 0,  1, 10, 20,  2,  3, 11, 21])
    """
    axis, sizes = _check(shape, sizes, axis)
    return along(shape, axis, dealt(sizes, groups))


@one_to_one()
def ungroup(
    shape: Shape,
    /,
    *,
    sizes: Sequence[int],
    groups: int,
    axis: int = 0,
    **_options: Unpack[Options],
) -> Layout:
    """The inverse of `regroup`, with the same arguments: groups back to whole segments.

    Args:
        shape: any array whose `axis` is the sum of `sizes`.
        sizes: elements of each *whole* segment.
        groups: how many groups the axis holds.
        axis: the axis to reorder.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        SizeError: when the sizes do not add up to the axis, or `groups` does not divide one.
        AxisError: when the array has no such axis.

    >>> import numpy as np
    >>> ungroup(np.array([0, 1, 10, 20, 2, 3, 11, 21]), sizes=(4, 2, 2), groups=2)
    array([ 0,  1,  2,  3, 10, 11, 20, 21])
    """
    axis, sizes = _check(shape, sizes, axis)
    return along(shape, axis, dealt(sizes, groups).inverse())


def dealt(sizes: Sequence[int], groups: int, order: Sequence[int] | None = None) -> Layout:
    """Arrays as segments, dealt into one axis group by group, in `order` within a group."""
    groups = integer(groups, "groups", 1)
    common = math.gcd(*sizes)
    parts = [
        divide(n, groups, f"sizes: segment {k}", "groups", lambda g: common % g == 0)
        for k, n in enumerate(sizes)
    ]
    width = sum(parts)
    pieces, at = [], 0
    for k in range(len(parts)) if order is None else order:
        start = sum(sizes[:k])
        pieces.append(Piece(start, at, ((groups, parts[k], width), (parts[k], 1, 1))))
        at += parts[k]
    return Layout(tuple((n,) for n in sizes), ((sum(sizes),),), tuple(pieces))


def _check(shape: Shape, sizes: Sequence[int], axis: int) -> tuple[int, tuple[int, ...]]:
    axis = axis_of(axis, len(shape))
    sizes = integers(sizes, "sizes")
    if sum(sizes) != shape[axis]:
        raise SizeError(f"sizes: {sizes} add up to {sum(sizes)}; axis {axis} is {shape[axis]}")
    return axis, sizes
