"""Which elements of each tensor have been written, so that each is written exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from xlayout.errors import PortError
from xlayout.port.formats.base import Bounds, TensorSpec
from xlayout.port.formats.boxes import volume

__all__ = ["Coverage"]


class Coverage:
    """The boxes written so far, per tensor; adjacent boxes are merged.

    Tiles arrive in some scan order, so the boxes stay few however many tiles there are.
    """

    def __init__(self, specs: Mapping[str, TensorSpec], /) -> None:
        self._specs = specs
        self._boxes: dict[str, list[Bounds]] = {name: [] for name in specs}
        self._lock = Lock()

    def claim(self, name: str, box: Bounds, /) -> None:
        """Note that `box` of a tensor is being written.

        Raises:
            PortError: Some of its elements were written before.
        """
        if any(start == stop for start, stop in box):
            return
        with self._lock:
            boxes = self._boxes[name]
            if clash := next((other for other in boxes if _overlap(box, other)), None):
                raise PortError(f"{name}: {_show(box)} meets {_show(clash)}, written before")
            if not box and boxes:
                raise PortError(f"{name}: a scalar that was written before")
            while found := next(
                ((other, both) for other in boxes if (both := _union(box, other))), None
            ):
                mate, box = found
                boxes.remove(mate)
            boxes.append(box)

    def missing(self) -> dict[str, int]:
        """Return how many elements are still missing from each incomplete tensor."""
        lacking = {
            name: self._specs[name].size - sum(volume(box) for box in boxes)
            for name, boxes in self._boxes.items()
        }
        return {name: count for name, count in lacking.items() if count}


def _overlap(a: Bounds, b: Bounds) -> bool:
    return bool(a) and all(p < s and r < q for (p, q), (r, s) in zip(a, b, strict=True))


def _union(a: Bounds, b: Bounds) -> Bounds | None:
    """Return the box that two disjoint boxes form together, or None if they form none."""
    apart = [axis for axis, (p, q) in enumerate(zip(a, b, strict=True)) if p != q]
    if len(apart) != 1:
        return None
    axis = apart[0]
    (p, q), (r, s) = a[axis], b[axis]
    if q != r and s != p:
        return None
    return (*a[:axis], (min(p, r), max(q, s)), *a[axis + 1 :])


def _show(box: Bounds) -> str:
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in box) + "]"
