"""Rope: the two orders in which rotary embeddings pair the features of a head."""

from __future__ import annotations

from typing import Unpack

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape, axis_of, divide, integer
from xlayout.ops.along import along
from xlayout.ops.op import one_to_one
from xlayout.ops.options import Options

__all__ = ["rope_halves", "rope_pairs"]


@one_to_one()
def rope_halves(
    shape: Shape, /, *, heads: int, axis: int = 0, **_options: Unpack[Options]
) -> Layout:
    """Per head, pairs to halves: `(x0, y0, x1, y1, ...) -> (x0, x1, ..., y0, y1, ...)`.

    From Meta's, GGUF's and MaxText's "interleaved" order to the `rotate_half` order of Hugging
    Face. For grouped-query attention give each tensor its own head count: `kv_heads` for the keys.

    Args:
        shape: any array whose `axis` is heads times an even head dimension.
        heads: heads of *this* tensor.
        axis: the axis that holds the heads.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        SizeError: when the axis does not divide into heads of even size.
        AxisError: when the array has no such axis.

    >>> import numpy as np
    >>> rope_halves(np.array([0, 10, 1, 11]), heads=1)
    array([ 0,  1, 10, 11])
    """
    return _rope(shape, heads, axis, to_halves=True)


@one_to_one()
def rope_pairs(
    shape: Shape, /, *, heads: int, axis: int = 0, **_options: Unpack[Options]
) -> Layout:
    """Per head, halves to pairs: `(x0, x1, ..., y0, y1, ...) -> (x0, y0, x1, y1, ...)`.

    The inverse of `rope_halves`, with the same arguments.

    Args:
        shape: any array whose `axis` is heads times an even head dimension.
        heads: heads of *this* tensor.
        axis: the axis that holds the heads.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        SizeError: when the axis does not divide into heads of even size.
        AxisError: when the array has no such axis.

    >>> import numpy as np
    >>> rope_pairs(np.array([0, 1, 10, 11]), heads=1)
    array([ 0, 10,  1, 11])
    """
    return _rope(shape, heads, axis, to_halves=False)


def _rope(shape: Shape, heads: int, axis: int, *, to_halves: bool) -> Layout:
    axis = axis_of(axis, len(shape))
    heads = integer(heads, "heads", 1)
    half = divide(shape[axis], 2 * heads, f"x: axis {axis}", "2 * heads", lambda n: n % 2 == 0)
    split = (heads, half, 2) if to_halves else (heads, 2, half)
    return along(shape, axis, Layout.permute(split, (0, 2, 1)))
