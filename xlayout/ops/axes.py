"""Axes: the array API's transposes, materialised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape
from xlayout.errors import AxisError
from xlayout.ops.op import one_to_one
from xlayout.ops.options import Options
from xlayout.ops.touched import nothing

__all__ = ["matrix_transpose", "permute_dims"]


@one_to_one(touched=nothing)
def matrix_transpose(shape: Shape, /, **_options: Unpack[Options]) -> Layout:
    """The last two axes swapped (the array API's name), in fresh row-major memory.

    Peak memory is input plus output, also for a non-contiguous input, which is never modified.
    `copy=None` gives a view where the framework has one.

    Args:
        shape: an array of at least two axes.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        AxisError: for fewer than two axes.

    >>> import numpy as np
    >>> matrix_transpose(np.arange(6).reshape(2, 3))
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    if len(shape) < 2:
        raise AxisError(f"x: {len(shape)} axes, shape {shape}; a matrix transpose needs at least 2")
    axes = range(len(shape))
    return Layout.permute(shape, (*axes[:-2], axes[-1], axes[-2]))


@one_to_one(touched=nothing)
def permute_dims(shape: Shape, /, axes: Sequence[int], **_options: Unpack[Options]) -> Layout:
    """The axes in another order (the array API's name), in fresh row-major memory.

    Args:
        shape: any array.
        axes: every axis once; negative ones count from the end.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        AxisError: when `axes` is not a permutation of the array's axes.

    >>> import numpy as np
    >>> permute_dims(np.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return Layout.permute(shape, axes)
