"""Boxes of a tensor: what they have in common, and which of many are near a region."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from xlayout.port.formats.base import Bounds

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["Boxed", "extent", "meet", "volume", "within"]


class _HasBox(Protocol):
    @property
    def box(self) -> Bounds: ...


T = TypeVar("T", bound=_HasBox)


@dataclass(frozen=True, slots=True, init=False)
class Boxed(Generic[T]):
    """Things that each have a box of one tensor, sorted by it.

    Args:
        items: The things, in any order.
        ndim: The number of the tensor's axes.
    """

    items: tuple[T, ...]
    _longest: tuple[int, ...]

    def __init__(self, items: Iterable[T], ndim: int, /) -> None:
        found = tuple(sorted(items, key=lambda item: item.box))
        longest = tuple(
            max((item.box[axis][1] - item.box[axis][0] for item in found), default=0)
            for axis in range(ndim)
        )
        object.__setattr__(self, "items", found)
        object.__setattr__(self, "_longest", longest)

    def near(self, box: Bounds, /) -> Sequence[T]:
        """Return a few of perhaps 100,000 things, among them all whose box meets this one.

        This takes bisection: those that agree along the first axes are sorted by the next one.
        """
        low, high = 0, len(self.items)
        for axis, (start, stop) in enumerate(box):
            begin = partial(_begin, axis)
            low = bisect_right(self.items, start - self._longest[axis], low, high, key=begin)
            high = bisect_left(self.items, stop, low, high, key=begin)
            if low >= high or self.items[low].box[axis] != self.items[high - 1].box[axis]:
                break
        return self.items[low:high]

    def parts(self, box: Bounds, array: Array, /) -> Iterator[tuple[T, Bounds, Array]]:
        """Yield each thing that a box meets, where within the thing, and the array of that part.

        Args:
            box: A region of the tensor.
            array: The array of that region, of which views are yielded.
        """
        for item in self.near(box):
            if (common := meet(box, item.box)) is not None:
                cuts: tuple[Any, ...] = tuple(starmap(slice, within(common, box)))
                yield item, within(common, item.box), array[(*cuts, ...)]  # no scalar, if 0-d


def _begin(axis: int, item: _HasBox) -> int:
    return item.box[axis][0]


def extent(box: Bounds, /) -> tuple[int, ...]:
    """Return the shape of a box.

    >>> extent(((2, 5), (0, 4)))
    (3, 4)
    """
    return tuple(stop - start for start, stop in box)


def volume(box: Bounds, /) -> int:
    """Return the number of elements in a box.

    >>> volume(((2, 5), (0, 4))), volume(())
    (12, 1)
    """
    return math.prod(extent(box))


def meet(a: Bounds, b: Bounds, /) -> Bounds | None:
    """Return the intersection of two boxes; None if it is empty.

    >>> meet(((0, 4), (0, 2)), ((3, 9), (1, 2))), meet(((0, 4),), ((4, 9),))
    (((3, 4), (1, 2)), None)
    """
    common = tuple((max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
    return common if all(start < stop for start, stop in common) else None


def within(box: Bounds, outer: Bounds, /) -> Bounds:
    """Return a box as seen from the corner of one around it.

    >>> within(((3, 4), (1, 2)), ((3, 9), (1, 2)))
    ((0, 1), (0, 1))
    """
    return tuple((a - start, b - start) for (a, b), (start, _) in zip(box, outer, strict=True))
