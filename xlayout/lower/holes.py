"""Holes: output positions that no input goes to, filled in place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, cast

from xlayout.algebra import Layout, Piece
from xlayout.algebra.boxes import Box, boxes
from xlayout.algebra.compose import between_each
from xlayout.algebra.piece import Loop
from xlayout.algebra.shapes import Shape, bounds
from xlayout.algebra.strided import StridedCopy, row_major
from xlayout.backend import Backend, Moves

__all__ = ["copied_holes", "fill_holes", "holes_of"]

_MOST = 16  # boxes of holes in one output; filling more takes longer than filling everything

Region = tuple[tuple[int, int], ...]
"""(start, end) of a box along each axis."""


def fill_holes(backend: Backend, layout: Layout, outputs: Sequence[Any], value: Any) -> None:
    """Fill what the layout leaves unwritten, or the whole output if that is too many boxes."""
    for output, regions in zip(outputs, holes_of(layout), strict=True):
        steps = cast(Sequence[int], backend.strides(output))
        for region in regions:
            start = sum(first * step for (first, _), step in zip(region, steps, strict=True))
            shape = [last - first for first, last in region]
            backend.assign(backend.view(output, start, steps, shape), value)


@lru_cache(1024)
def copied_holes(
    layout: Layout, row: int, targets: tuple[tuple[int, ...], ...] | None = None
) -> Moves | None:
    """The holes as copies from one more input, a row of so many elements; None if no boxes.

    `targets` are the strides of the outputs, in elements; None if they are row-major.

    >>> copied_holes(Layout.pad((4, 3), axis=1, to=5), 4096)
    ((1, 0, (0, 3, ((4, 0, 5), (2, 1, 1)))),)
    >>> copied_holes(Layout.pad((4, 3), axis=0, to=6), 4)
    ((1, 0, (0, 12, ((1, 0, 4), (4, 1, 1)))), (1, 0, (0, 16, ((2, 1, 1),))))
    """
    if not layout.has_holes:
        return ()
    found = holes_of(layout)
    holes = sum(prod([last - first for first, last in box]) for each in found for box in each)
    if holes + layout.size != layout.out_size:
        return None
    source = len(layout.in_shapes)
    targets = tuple(map(row_major, layout.out_shapes)) if targets is None else targets
    return tuple(
        (source, target, copy)
        for target, (steps, regions) in enumerate(zip(targets, found, strict=True))
        for region in regions
        for copy in _copies(region, steps, row)
    )


def _copies(region: Region, steps: tuple[int, ...], row: int) -> list[StridedCopy]:
    """A region as copies of the row: as often as it fits into a stretch, and once what is left."""
    to = sum(first * step for (first, _), step in zip(region, steps, strict=True))
    run, outer = 1, list[Loop]()
    sizes = [last - first for first, last in region]
    for step, n in sorted(zip(steps, sizes, strict=True)):
        if step == run:
            run *= n
        else:
            outer.insert(0, (n, 0, step))
    times, rest = divmod(run, row)
    copies: list[StridedCopy] = [(0, to, (*outer, (times, 0, row), (row, 1, 1)))] if times else []
    return [*copies, (0, to + times * row, (*outer, (rest, 1, 1)))] if rest else copies


@lru_cache(1024)
def holes_of(layout: Layout) -> tuple[tuple[Region, ...], ...]:
    """For each output its holes as boxes; the whole output as one box if there are too many.

    >>> holes_of(Layout.pad((4, 3), axis=1, to=5))
    ((((0, 4), (3, 5)),),)
    """
    written: list[list[tuple[Shape, tuple[Piece, ...]]]] = [[] for _ in layout.out_shapes]
    for j, k, pieces in between_each(
        layout.pieces, bounds(layout.in_shapes), bounds(layout.out_shapes)
    ):
        written[k].append((layout.in_shapes[j], pieces))
    return tuple(map(tuple, map(_holes, layout.out_shapes, written)))


def _holes(out_shape: Shape, written: list[tuple[Shape, tuple[Piece, ...]]]) -> list[Region]:
    """The holes of one output, where these pieces, each from an array of that shape, write it."""
    whole: Region = tuple([(0, n) for n in out_shape])
    left = [whole] if 0 not in out_shape else []
    for in_shape, pieces in written:
        found = boxes(0, pieces, in_shape, out_shape)
        if found is None:
            return [whole]
        for box in found:
            region = _written(box)
            if region is None:
                return [whole]
            left = [rest for hole in left for rest in _without(hole, region)]
            if len(left) > _MOST:
                return [whole]
    return left


def _written(box: Box) -> Region | None:
    """The region that a box writes, or None if it leaves gaps."""
    region = []
    for axis, first in enumerate(box.offsets):
        n = 1
        for run in reversed(box.on_output(axis)):
            if run.out_step != n:
                return None
            n *= run.n
        region.append((first, first + n))
    return tuple(region)


def _without(hole: Region, region: Region) -> list[Region]:
    """What remains of a box: below and above the region along each axis in turn."""
    left: list[Region] = []
    core: Region = ()
    for axis, ((first, last), (low, high)) in enumerate(zip(hole, region, strict=True)):
        low, high = max(first, low), min(last, high)
        if low >= high:
            return [hole]
        rest = hole[axis + 1 :]
        left += [(*core, side, *rest) for side in ((first, low), (high, last)) if side[0] < side[1]]
        core = (*core, (low, high))
    return left
