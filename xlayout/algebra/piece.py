"""Piece: one affine box that pairs input positions with output positions.

    Piece(in_offset, out_offset, ((n, in_stride, out_stride), ...))
      = {(in_offset + sum k_j * in_stride_j, out_offset + sum k_j * out_stride_j) : 0 <= k_j < n_j}

It holds the same numbers as a loop nest, a DMA descriptor or `as_strided().copy_()`. A piece
without gaps is exactly split -> permute -> merge; `in_stride = 0` is a broadcast.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from xlayout.algebra.shapes import Shape, integer
from xlayout.errors import SizeError

__all__ = ["Loop", "Parts", "Piece", "are_nested", "fused", "span"]

Loop = tuple[int, int, int]
"""(n, in_stride, out_stride): `n` steps, and the elements that each moves on either side."""


def span(steps: Iterable[tuple[int, int]]) -> int:
    """Distance from the first to the last position that `(n, stride)` steps reach."""
    return sum([(n - 1) * stride for n, stride in steps])


def are_nested(loops: Sequence[Loop]) -> bool:
    """Whether each stride is larger than the span of all smaller ones, on both sides.

    Nested loops never reach a position twice, except for broadcasts (stride 0) on the input side,
    and their digits can be found by division.
    """
    for steps in ([(x, n) for n, x, _ in loops if x], [(z, n) for n, _, z in loops]):
        reach = 0
        for stride, n in sorted(steps):
            if stride <= reach:
                return False
            reach += (n - 1) * stride
    return True


def fused(loops: Iterable[Loop]) -> tuple[Loop, ...]:
    """The same loops, largest out stride first; those that continue one another are fused.

    >>> fused(((3, 1, 1), (1, 7, 7), (2, 3, 3)))
    ((6, 1, 1),)
    """
    made: list[Loop] = []
    for n, x, z in sorted([loop for loop in loops if loop[0] != 1], key=_by_out_stride):
        if made and made[-1][1] == n * x and made[-1][2] == n * z:
            made[-1] = (made[-1][0] * n, x, z)
        else:
            made.append((n, x, z))
    return tuple(made)


def _by_out_stride(loop: Loop) -> tuple[int, int]:
    return (-loop[2], -loop[1])


@dataclass(frozen=True, slots=True)
class Piece:
    """One affine box of (input, output) positions, in normal form.

    The constructor drops loops of one step, sorts by out stride (largest first) and fuses
    neighbours whose strides chain on both sides. For a bijection held in one piece that form is
    unique: a decomposition of an interval into arithmetic progressions is mixed radix (de Bruijn,
    1956).

    Args:
        in_offset: first input position, in elements.
        out_offset: first output position, in elements.
        loops: `(n, in_stride, out_stride)` in any order.

    Raises:
        TypeError: for a value that is not an int.
        SizeError: for a negative offset, count or stride, for an out stride of 0 (two values for
            one output position), or for strides that overlap on one side.

    >>> Piece(0, 0, ((2, 3, 3), (3, 1, 1)))
    Piece(in_offset=0, out_offset=0, loops=((6, 1, 1),))
    """

    in_offset: int
    out_offset: int
    loops: tuple[Loop, ...] = ()

    def __post_init__(self) -> None:
        if type(self.in_offset) is not int or type(self.out_offset) is not int:
            for name in ("in_offset", "out_offset"):
                object.__setattr__(self, name, integer(getattr(self, name), name, None))
        if self.in_offset < 0 or self.out_offset < 0:
            raise SizeError(
                f"piece: offsets {self.in_offset}, {self.out_offset}; both must be at least 0"
            )
        given = _loops(self.loops)
        if 0 in [n for n, _, _ in given] and all(min(loop) >= 0 for loop in given):
            object.__setattr__(self, "loops", ((0, 1, 1),))  # no pairs, whatever the strides
            return
        for n, x, z in given:
            if n != 1 and (n < 0 or x < 0 or z < 1):
                raise SizeError(
                    f"piece: loop {(n, x, z)}; wanted (n >= 0, in_stride >= 0, out_stride >= 1)"
                )
        loops = fused(given)
        object.__setattr__(self, "loops", loops)
        if not are_nested(loops):
            raise SizeError(
                f"piece: loops {loops} overlap on one side; split the piece until each "
                "stride is larger than the span of the smaller ones"
            )

    @property
    def size(self) -> int:
        """Number of (input, output) pairs."""
        return math.prod(n for n, _, _ in self.loops)

    @property
    def in_end(self) -> int:
        """One past the last input position."""
        return self.in_offset + span((n, x) for n, x, _ in self.loops) + 1

    @property
    def out_end(self) -> int:
        """One past the last output position."""
        return self.out_offset + span((n, z) for n, _, z in self.loops) + 1

    @property
    def repeats(self) -> bool:
        """Whether some input position goes to several output positions."""
        return any(x == 0 for _, x, _ in self.loops)

    def inverse(self) -> Piece:
        """The same pairs with inputs and outputs swapped."""
        return Piece(self.out_offset, self.in_offset, tuple((n, z, x) for n, x, z in self.loops))

    def shifted(self, in_by: int, out_by: int) -> Piece:
        """The same box, moved."""
        moved = Piece(self.in_offset + in_by, self.out_offset + out_by)
        object.__setattr__(moved, "loops", self.loops)  # in normal form already
        return moved


Parts = tuple[tuple[Shape, ...], tuple[Shape, ...], tuple[Piece, ...]]
"""(input shapes, output shapes, pieces): what a layout is made of."""


def _loops(given: Any) -> tuple[Loop, ...]:
    """Loops with Python ints: numpy's would overflow."""
    try:
        loops = [(n, x, z) for n, x, z in given]
    except (TypeError, ValueError):
        raise TypeError(f"loops: {given!r}; wanted (n, in_stride, out_stride) for each") from None
    if set(map(type, itertools.chain(*loops))) <= {int}:  # fast path
        return tuple(loops)
    rows = [[integer(number, "loops", None) for number in loop] for loop in loops]
    return tuple([(n, x, z) for n, x, z in rows])
