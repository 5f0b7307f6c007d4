"""Naming: a pattern for a bijection of several boxes, where there is one.

Every run of every box starts with its own name. Along the axes of each array, runs that take the
same place get one name, and boxes that lie side by side become segments, `(q + k + v)`. The result
is a candidate: the caller parses it and compares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xlayout.algebra.boxes import Box, Run, boxes, overlapping
from xlayout.algebra.compose import between_each
from xlayout.algebra.piece import Piece, span
from xlayout.algebra.shapes import Shape, bounds

__all__ = ["pattern_of"]

_Place = tuple[int, int, tuple[Run, ...]]
"""(box, offset, runs): what remains of a box along one axis."""


def pattern_of(
    in_shapes: Sequence[Shape], out_shapes: Sequence[Shape], pieces: Sequence[Piece]
) -> str | None:
    """A pattern with its sizes that may describe the layout, or None."""
    found: list[tuple[int, int, Box]] = []
    for j, k, here in between_each(pieces, bounds(in_shapes), bounds(out_shapes)):
        cut = boxes(j, here, in_shapes[j], out_shapes[k])
        if cut is None or any(r.in_axis < 0 for box in cut for r in box.runs):
            return None
        found += [(j, k, _with_ones(box, in_shapes[j], out_shapes[k])) for box in cut]
    naming = _Naming([box for _, _, box in found])
    of_input: list[list[int]] = [[] for _ in in_shapes]
    of_output: list[list[int]] = [[] for _ in out_shapes]
    for i, (j, k, _) in enumerate(found):
        of_input[j].append(i)
        of_output[k].append(i)
    left = [naming.array(*own, inputs=True) for own in zip(of_input, in_shapes, strict=True)]
    right = [naming.array(*own, inputs=False) for own in zip(of_output, out_shapes, strict=True)]
    if None in left or None in right:
        return None
    return naming.text(left, right)


def _with_ones(box: Box, in_shape: Shape, out_shape: Shape) -> Box:
    """The box with a run of one along every axis where it is a segment on one side only."""
    if len(in_shape) != len(out_shape):
        return box
    used = {axis for run in box.runs for axis in (run.in_axis, run.out_axis)}
    ones = [
        Run(1, axis, 1, axis, 1)
        for axis, sizes in enumerate(zip(in_shape, out_shape, strict=True))
        if axis not in used and max(sizes) > 1
    ]
    return replace(box, runs=(*box.runs, *ones))


_Tree = list["tuple[int, Run] | list[_Tree]"]
"""A product: runs, and sums of products."""


@dataclass
class _Naming:
    """The boxes, and which of their runs share a name, as a union-find forest.

    Attributes:
        found: the boxes; (number of the box, run) identifies a run.
        same: the parent of each run in the forest; a run without one is a root.
    """

    found: list[Box]
    same: dict[tuple[int, Run], tuple[int, Run]] = field(default_factory=dict)

    def array(self, members: list[int], shape: Shape, *, inputs: bool) -> list[_Tree] | None:
        """One product per axis of an array."""
        axes: list[_Tree] = []
        runs_of = {i: _by_axis(self.found[i], inputs) for i in members}
        for axis, size in enumerate(shape):
            places: list[_Place] = []
            for i in members:
                box = self.found[i]
                start = box.starts[axis] if inputs else box.offsets[axis]
                places.append((i, start, tuple(runs_of[i].get(axis, ()))))
            tree = self._axis(places, size, inputs=inputs)
            if tree is None:
                return None
            axes.append(tree)
        return axes

    def _axis(self, places: list[_Place], size: int, *, inputs: bool) -> _Tree | None:
        """The product of one axis, or None: all places alike, side by side, or periods of those."""
        shapes = {
            (start, tuple((r.n, _step(r, inputs)) for r in runs)) for _, start, runs in places
        }
        if len(shapes) == 1:
            _, start, runs = places[0]
            if start or math.prod(r.n for r in runs) != size:
                return None
            self._unite(places)
            return [(places[0][0], run) for run in runs]
        groups = overlapping(
            (start, start + span((r.n, _step(r, inputs)) for r in runs) + 1, (i, start, runs))
            for i, start, runs in places
        )
        if len(groups) > 1:
            summands: list[_Tree] = []
            at = 0
            for low, high, members in groups:
                inner = [(i, start - low, runs) for i, start, runs in members]
                part = self._axis(inner, high - low, inputs=inputs) if low == at else None
                if not part:
                    return None
                summands.append(part)
                at = high
            return [summands] if at == size else None
        outer = {(runs[0].n, _step(runs[0], inputs)) if runs else None for _, _, runs in places}
        if len(outer) != 1 or None in outer:
            return None
        ((n, period),) = (o for o in outer if o is not None)
        inner = [(i, start, runs[1:]) for i, start, runs in places]
        rest = self._axis(inner, period, inputs=inputs) if n * period == size else None
        if rest is None:
            return None
        self._unite([(i, 0, runs[:1]) for i, _, runs in places])
        return [(places[0][0], places[0][2][0]), *rest]

    def _unite(self, places: list[_Place]) -> None:
        """Give the runs of all places the names of those of the first."""
        first, _, runs = places[0]
        for i, _, others in places[1:]:
            for a, b in zip(runs, others, strict=True):
                self.same[self._root((i, b))] = self._root((first, a))

    def _root(self, run: tuple[int, Run]) -> tuple[int, Run]:
        """The run whose name a run has."""
        while self.same.get(run, run) != run:
            run = self.same[run]
        return run

    def text(self, left: Sequence[list[_Tree] | None], right: Sequence[list[_Tree] | None]) -> str:
        """The pattern, each name with its size at its first occurrence."""
        names: dict[tuple[int, Run], str] = {}

        def factor(item: tuple[int, Run] | list[_Tree]) -> str:
            if isinstance(item, list):
                return f"({' + '.join(product(summand) for summand in item)})"
            root = self._root(item)
            if root in names:
                return names[root]
            k = len(names)
            names[root] = chr(ord("a") + k % 26) + (str(k // 26) if k >= 26 else "")
            return f"{names[root]}={item[1].n}"

        def product(tree: _Tree) -> str:
            return " ".join(factor(item) for item in tree)

        def array(axes: list[_Tree] | None) -> str:
            return " ".join(
                "1" if not tree else product(tree) if len(tree) == 1 else f"({product(tree)})"
                for tree in axes or []
            )

        return f"{', '.join(map(array, left))} -> {', '.join(map(array, right))}"


def _by_axis(box: Box, inputs: bool) -> dict[int, list[Run]]:
    """The runs along each axis of the input or the output, largest step first."""
    found: dict[int, list[Run]] = {}
    for run in sorted(box.runs, key=lambda run: -_step(run, inputs)):
        found.setdefault(run.in_axis if inputs else run.out_axis, []).append(run)
    return found


def _step(run: Run, inputs: bool) -> int:
    return run.in_step if inputs else run.out_step
