"""Constructors: the parts of the layouts from which all others are made.

`Layout` wraps them under the same names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlayout.algebra.compose import between_each
from xlayout.algebra.merge import merge
from xlayout.algebra.piece import Parts, Piece
from xlayout.algebra.shapes import as_shape, axis_of, bounds, each_shape, integer, permutation
from xlayout.algebra.strided import row_major
from xlayout.errors import SizeError

__all__ = ["concat", "identity", "lift", "pad", "permute", "slice_"]


def identity(shape: Sequence[int] | int) -> Parts:
    """Every element stays where it is."""
    shape = as_shape(shape)
    return (shape,), (shape,), merge([Piece(0, 0, ((math.prod(shape), 1, 1),))])


def permute(shape: Sequence[int], axes: Sequence[int]) -> Parts:
    """The axes in another order."""
    shape = as_shape(shape)
    axes = permutation(axes, len(shape))
    out = tuple(shape[a] for a in axes)
    ins = row_major(shape)
    loops = tuple((shape[a], ins[a], z) for a, z in zip(axes, row_major(out), strict=True))
    return (shape,), (out,), merge([Piece(0, 0, loops)])


def slice_(shape: Sequence[int] | int, start: int, stop: int | None, axis: int) -> Parts:
    """The stretch `start:stop` of one axis."""
    shape = as_shape(shape)
    axis = axis_of(axis, len(shape))
    n = shape[axis]
    start = integer(start, "start")
    stop = n if stop is None else integer(stop, "stop")
    if not start <= stop <= n:
        raise SizeError(f"start, stop: {start}:{stop} is not a stretch of axis {axis} = {n}")
    kept = Piece(start, 0, ((stop - start, 1, 1),))
    return lift((((n,),), ((stop - start,),), (kept,)), shape[:axis], shape[axis + 1 :])


def concat(shapes: Sequence[Sequence[int]], axis: int) -> Parts:
    """Several arrays, one after the other along an axis."""
    found = list(each_shape(shapes))
    if not found:
        raise SizeError("shapes: none given; concatenate at least one array")
    first = found[0]
    axis = axis_of(axis, len(first))
    if len({(len(s), s[:axis], s[axis + 1 :]) for s in found}) > 1:
        raise SizeError(f"shapes: {found} differ outside axis {axis}; only that axis may differ")
    total = sum(s[axis] for s in found)
    core = tuple((s[axis],) for s in found), ((total,),), (Piece(0, 0, ((total, 1, 1),)),)
    return lift(core, first[:axis], first[axis + 1 :])


def pad(shape: Sequence[int] | int, to: int, axis: int) -> Parts:
    """One axis lengthened to `to`, with holes at its end."""
    shape = as_shape(shape)
    axis = axis_of(axis, len(shape))
    n, to = shape[axis], integer(to, "to")
    if to < n:
        raise SizeError(
            f"to: {to} is less than axis {axis} = {n}; pad only lengthens, trim shortens"
        )
    core = ((n,),), ((to,),), (Piece(0, 0, ((n, 1, 1),)),)
    return lift(core, shape[:axis], shape[axis + 1 :])


def lift(parts: Parts, before: Sequence[int] | int, after: Sequence[int] | int) -> Parts:
    """The same layout on the middle axes of arrays of shape `(*before, *shape, *after)`.

    An outer loop and an inner run around every piece; with several arrays each of them is lifted
    on its own, so the pieces are first cut where one array ends and the next begins.
    """
    in_shapes, out_shapes, pieces = parts
    before, after = as_shape(before, "before"), as_shape(after, "after")
    a, c = math.prod(before), math.prod(after)
    lifted: list[Piece] = []
    in_bounds, out_bounds = bounds(in_shapes), bounds(out_shapes)
    for j, k, here in between_each(pieces, in_bounds, out_bounds):
        (source, source_end), (to, to_end) = in_bounds[j], out_bounds[k]
        for p in here:
            around = ((a, (source_end - source) * c, (to_end - to) * c), (c, 1, 1))
            loops = tuple((n, x * c, z * c) for n, x, z in p.loops)
            first, start = source * a + p.in_offset, to * a + p.out_offset
            lifted.append(Piece(first * c, start * c, (*around, *loops)))
    return (
        tuple((*before, *s, *after) for s in in_shapes),
        tuple((*before, *s, *after) for s in out_shapes),
        merge(lifted),
    )
