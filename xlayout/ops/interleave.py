"""Interleave: two halves (or more) of an axis, woven together block by block."""

from __future__ import annotations

from typing import Unpack

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape, axis_of, divide, integer
from xlayout.ops.along import along
from xlayout.ops.op import one_to_one
from xlayout.ops.options import Options

__all__ = ["deinterleave", "interleave"]


@one_to_one()
def interleave(
    shape: Shape, /, *, block: int = 1, groups: int = 2, axis: int = 0, **_options: Unpack[Options]
) -> Layout:
    """`[W | V] -> [W0, V0, W1, V1, ...]`, in blocks of `block`.

    The axis is split (groups, n, block) and read (n, groups, block). With two groups this is the
    gate/up order of TransformerEngine's grouped GLU kernels (`interleave_glu_tensor`);
    `transformers` calls the *inverse* of `block=1` "Interleave".

    Args:
        shape: any array; its `axis` holds the groups one after the other.
        block: number of neighbouring elements that stay together.
        groups: number of parts that the axis consists of.
        axis: the axis to reorder; all others are left alone and may be dynamic under a compiler.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        SizeError: when the axis does not divide into `groups * block`.
        AxisError: when the array has no such axis.

    >>> import numpy as np
    >>> interleave(np.array([0, 1, 2, 3, 10, 11, 12, 13]), block=2)
    array([ 0,  1, 10, 11,  2,  3, 12, 13])
    >>> str(interleave.layout((8,), block=2))
    '(a=2 b=2 c=2) -> (b a c)'
    """
    axis, n, block, groups = _check(shape, axis, block, groups)
    core = Layout.permute((groups, n, block), (1, 0, 2))
    return along(shape, axis, core)


@one_to_one()
def deinterleave(
    shape: Shape, /, *, block: int = 1, groups: int = 2, axis: int = 0, **_options: Unpack[Options]
) -> Layout:
    """`[W0, V0, W1, V1, ...] -> [W | V]`: the inverse of `interleave`, with the same checks.

    Args:
        shape: any array; its `axis` holds blocks of the groups in turn.
        block: elements that stay together.
        groups: how many parts the axis is made of.
        axis: the axis to reorder.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        SizeError: when the axis does not divide into `groups * block`.
        AxisError: when the array has no such axis.

    >>> import numpy as np
    >>> deinterleave(np.array([0, 1, 10, 11, 2, 3, 12, 13]), block=2)
    array([ 0,  1,  2,  3, 10, 11, 12, 13])
    """
    axis, n, block, groups = _check(shape, axis, block, groups)
    core = Layout.permute((n, groups, block), (1, 0, 2))
    return along(shape, axis, core)


def _check(shape: Shape, axis: int, block: int, groups: int) -> tuple[int, int, int, int]:
    axis = axis_of(axis, len(shape))
    block, groups = integer(block, "block", 1), integer(groups, "groups", 1)
    of, parts = f"x: axis {axis}", "groups * block"
    n = divide(shape[axis], groups * block, of, parts, lambda n: n % groups == 0)
    return axis, n, block, groups
