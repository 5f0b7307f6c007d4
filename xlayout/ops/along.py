"""Along: an op on one axis, from what it does to a vector."""

from __future__ import annotations

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape

__all__ = ["along"]


def along(shape: Shape, axis: int, core: Layout) -> Layout:
    """`core`, a layout of as many elements as the axis has, applied along it.

    >>> str(along((2, 6), 1, Layout.permute((2, 3), (1, 0))))
    'a=2 (b=2 c=3) -> a (c b)'
    """
    size = [(shape[axis],)]
    return core.regrouped(size, size).lift(shape[:axis], shape[axis + 1 :])
