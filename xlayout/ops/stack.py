"""Stack: equal arrays along a new axis (experts, scanned layers), and back."""

from __future__ import annotations

from typing import Unpack

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape, axis_of
from xlayout.errors import SizeError
from xlayout.ops.op import many_to_one, one_to_many
from xlayout.ops.options import Options

__all__ = ["stack", "unstack"]


@many_to_one
def stack(shapes: tuple[Shape, ...], /, *, axis: int = 0, **_options: Unpack[Options]) -> Layout:
    """Arrays of one shape along a new axis.

    Each input is written straight to its place: no intermediate array holds them all.

    Args:
        shapes: a sequence of arrays, all of one shape.
        axis: where the new axis goes, counted in the result.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        SizeError: for no arrays, or different shapes.
        AxisError: when the result would have no such axis.

    >>> import numpy as np
    >>> stack([np.array([0, 1]), np.array([10, 11])], axis=1)
    array([[ 0, 10],
           [ 1, 11]])
    """
    if not shapes:
        raise SizeError("xs: no arrays; give at least one")
    if len(set(shapes)) > 1:
        raise SizeError(f"xs: shapes {sorted(set(shapes))} differ; stack takes arrays of one shape")
    shape = shapes[0]
    axis = axis_of(axis, len(shape) + 1)
    before, after = shape[:axis], shape[axis:]
    ones = Layout.concat([(1,)] * len(shapes)).lift(before, after)
    return ones.regrouped(in_shapes=shapes)


@one_to_many
def unstack(shape: Shape, /, *, axis: int = 0, **_options: Unpack[Options]) -> Layout:
    """The slices along an axis, as a tuple; undoes `stack`.

    In torch and numpy `copy=None` gives views.

    Args:
        shape: any array of at least one axis.
        axis: the axis to take apart.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        AxisError: when the array has no such axis.
        SizeError: for an axis of size 0, which has no slices.

    >>> import numpy as np
    >>> unstack(np.array([[0, 10], [1, 11]]), axis=1)
    (array([0, 1]), array([10, 11]))
    """
    axis = axis_of(axis, len(shape))
    if not shape[axis]:
        raise SizeError(f"x: axis {axis} has size 0; there is nothing to unstack")
    part = (*shape[:axis], *shape[axis + 1 :])
    ones = Layout.concat([(1,)] * shape[axis]).inverse().lift(shape[:axis], shape[axis + 1 :])
    return ones.regrouped(out_shapes=[part] * shape[axis])
