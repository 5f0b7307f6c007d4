"""Padding: an axis lengthened to a size, and cut back."""

from __future__ import annotations

from typing import Unpack

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape, axis_of, integer
from xlayout.errors import SizeError
from xlayout.ops.op import one_to_one
from xlayout.ops.options import Options

__all__ = ["pad", "trim"]


@one_to_one(fill="value")
def pad(
    shape: Shape,
    /,
    *,
    to: int,
    axis: int = 0,
    value: complex = 0,  # noqa: ARG001 -- of the array function: the layout only has holes
    **_options: Unpack[Options],
) -> Layout:
    """An axis lengthened to `to` with `value` at its end (vocabularies, flat shards).

    Args:
        shape: any array.
        to: new size of the axis, at least the old one.
        axis: the axis to lengthen.
        value: what the new positions hold: a number that the array's dtype can hold.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        SizeError: when `to` is less than the axis.
        AxisError: when the array has no such axis.
        ShapeError: for a value that the dtype would wrap or cut, such as 300 in uint8.

    >>> import numpy as np
    >>> pad(np.array([1, 2, 3]), to=5, value=-1)
    array([ 1,  2,  3, -1, -1])
    """
    return Layout.pad(shape, to, axis)


@one_to_one()
def trim(shape: Shape, /, *, to: int, axis: int = 0, **_options: Unpack[Options]) -> Layout:
    """An axis cut back to its first `to` elements; undoes `pad`.

    Args:
        shape: any array.
        to: new size of the axis, at most the old one.
        axis: the axis to cut.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        SizeError: when `to` is more than the axis.
        AxisError: when the array has no such axis.

    >>> import numpy as np
    >>> trim(np.array([1, 2, 3, -1, -1]), to=3)
    array([1, 2, 3])
    """
    axis = axis_of(axis, len(shape))
    to = integer(to, "to")
    if to > shape[axis]:
        raise SizeError(
            f"to: {to} is more than axis {axis} = {shape[axis]}; trim only shortens, pad lengthens"
        )
    return Layout.slice(shape, 0, to, axis)
