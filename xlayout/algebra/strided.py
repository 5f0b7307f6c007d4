"""Strided: a layout whose input lies in memory with given strides, as copies or as a view.

Memory is one more layout (address -> flat position), so addresses come from the same join as
everything else. `view` finds the only possible zero-copy view from a few elements, then proves or
refutes it on every piece: the answer is exact in both directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xlayout.algebra.compose import in_side
from xlayout.algebra.join import Side, join, side
from xlayout.algebra.piece import Loop, Piece, fused

__all__ = ["StridedCopy", "row_major", "strided_copies", "view"]

StridedCopy = tuple[int, int, tuple[Loop, ...]]
"""(from address, to address, ((n, from stride, to stride), ...)): one `as_strided().copy_()`.
Unlike in a Piece, strides of addresses may be zero, negative or overlapping."""


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major array, in elements.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def _axes(shape: Sequence[int], strides: Sequence[int]) -> Side:
    """Flat positions of `shape`, carrying their addresses under `strides`.

    Axes that continue one another in memory are one: rows of an array without gaps cut nothing.
    """
    axes = fused(zip(shape, strides, row_major(shape), strict=True))
    return side(0, 0, tuple((n, y, x) for n, x, y in axes))


def strided_copies(
    pieces: Iterable[Piece],
    in_shape: Sequence[int],
    in_strides: Sequence[int],
    out_shape: Sequence[int] | None = None,
    out_strides: Sequence[int] | None = None,
) -> list[StridedCopy]:
    """The pieces as copies between addresses; without an out shape, to flat output positions."""
    memory = _axes(in_shape, in_strides)
    copies: list[StridedCopy] = []
    for piece in pieces:
        shared, free = in_side(piece)
        for address, out, loops in join(memory, shared):
            copies.append((address, out, fused((*loops, *free))))
    if out_shape is None or out_strides is None or tuple(out_strides) == row_major(out_shape):
        return copies
    target = _axes(out_shape, out_strides)
    return [
        (address, to, fused(loops))
        for copy in copies
        for address, to, loops in join(_by_output(copy), target)
    ]


def _by_output(copy: StridedCopy) -> Side:
    address, out, loops = copy
    return side(out, address, tuple((n, z, x) for n, x, z in loops))


def view(
    pieces: Sequence[Piece],
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    strides: Sequence[int],
) -> tuple[int, tuple[int, ...]] | None:
    """`(offset, strides)` of an output without holes as a view of the input, or None."""
    copies = strided_copies(pieces, in_shape, strides)
    if not copies:
        return 0, row_major(out_shape)
    base = _address(copies, 0)
    steps = tuple(
        _address(copies, flat) - base if n > 1 else flat
        for n, flat in zip(out_shape, row_major(out_shape), strict=True)
    )
    wanted = _axes(out_shape, steps)
    for copy in copies:
        for found, rest, loop in join(_by_output(copy), wanted):
            if found != base + rest or any(a != b for n, a, b in loop if n > 1):
                return None
    return base, steps


def _address(copies: Iterable[StridedCopy], position: int) -> int:
    for copy in copies:
        for found, _, _ in join(_by_output(copy), (position, 0, ())):
            return found
    raise AssertionError("a layout without holes writes every position")
