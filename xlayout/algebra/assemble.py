"""Assemble: write the program of a layout.

Each box is read from its input (slice and reshape) and permuted to output order. Boxes are then put
together by guillotine cuts: those that lie side by side along an axis are concatenated, and those
that interleave with a common period get the period as an extra axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from xlayout.algebra.boxes import Box, Run, boxes, overlapping
from xlayout.algebra.compose import between_each
from xlayout.algebra.piece import Piece, span
from xlayout.algebra.program import Program, Writer
from xlayout.algebra.shapes import Shape, bounds

__all__ = ["build"]


def build(
    in_shapes: Sequence[Shape], out_shapes: Sequence[Shape], pieces: Sequence[Piece]
) -> Program:
    """The program of a layout.

    An output that guillotine cuts cannot make, or only with too many steps or copies, becomes one
    gather.
    """
    writer = Writer(list(in_shapes))
    parts: list[list[tuple[int, tuple[Piece, ...]]]] = [[] for _ in out_shapes]
    for j, k, here in between_each(pieces, bounds(in_shapes), bounds(out_shapes)):
        parts[k].append((j, here))
    empty = [j for j, shape in enumerate(in_shapes) if 0 in shape]
    outputs = [
        _with_empty(writer, _output(writer, k, parts[k], in_shapes, out_shape), empty)
        for k, out_shape in enumerate(out_shapes)
    ]
    return writer.finish(outputs)


def _with_empty(writer: Writer, made: int, empty: Sequence[int]) -> int:
    """`made`, with inputs of no elements concatenated to it, so that gradients reach them too."""
    shape = writer.shapes[made]
    parts = [writer.reshape(j, (0,)) for j in empty if j or 0 not in shape]
    if not parts:
        return made
    flat = writer.concatenate([writer.reshape(made, (math.prod(shape),)), *parts], 0)
    return writer.reshape(flat, shape)


_LONG = 128  # steps, besides a few for each input: compilers take seconds for more
_MOST = 16  # boxes after cutting; compilers handle one gather better than more slices
_LITTLE = 64  # elements per step; with fewer, a program is no shorter than an index table
_OFTEN = 8  # times that nested concatenations may write an output; a gather takes less by then
_MOST_AXES = 64  # as numpy's arrays have; more only where a shape has more itself


def _output(
    writer: Writer,
    number: int,
    parts: list[tuple[int, tuple[Piece, ...]]],
    in_shapes: Sequence[Shape],
    out_shape: Shape,
) -> int:
    """Try the axes as they are, then flat inputs, a flat output, and both."""
    if in_shapes and 0 in out_shape:  # cut from an input, so that gradients and batches reach it
        some = writer.reshape(0, in_shapes[0] or (1,))
        return writer.reshape(writer.slice(some, 0, 0, 0), out_shape)
    most_axes = max(_MOST_AXES, len(out_shape), *map(len, in_shapes))
    for flat_in, flat_out in ((False, False), (True, False), (False, True), (True, True)):
        target = (math.prod(out_shape),) if flat_out else out_shape
        found: list[Box] | None = []
        for j, pieces in parts:
            source = (math.prod(in_shapes[j]),) if flat_in else in_shapes[j]
            cut = boxes(j, pieces, source, target)
            found = None if cut is None or found is None else found + cut
        if found is None:
            continue
        before = len(writer.shapes)
        node = _Assembly(writer, target, flat_in).assemble(found, [()] * len(target), list(target))
        steps, size = len(writer.shapes) - before, math.prod(out_shape)
        axes = max(map(len, writer.shapes[before:]), default=0)
        is_short = steps <= _LONG + 4 * len(in_shapes)
        pays = size >= _LITTLE * steps and writer.concatenated(before) <= _OFTEN * size
        if node is not None and axes <= most_axes and (is_short or pays):
            return writer.reshape(node, out_shape)
    return writer.step("gather", tuple(range(len(in_shapes))), (number,), out_shape)


@dataclass(frozen=True, slots=True)
class _Assembly:
    """Puts the boxes of one output together."""

    writer: Writer
    target: Shape
    flat_in: bool

    def read(self, box: Box, peeled: Sequence[Shape], sizes: Sequence[int]) -> int:
        """The box's elements in output order."""
        w = self.writer
        x = box.source
        if self.flat_in:
            x = w.reshape(x, (math.prod(w.shapes[x]),))
        order: list[Run] = []
        shape: list[int] = []
        for axis in range(len(box.starts)):
            at, left = len(shape), box.starts[axis]
            runs = box.on_input(axis)
            for k, run in enumerate(runs):
                width = span((r.n, r.in_step) for r in runs[k + 1 :]) + 1
                x, start = self._periods(x, at, run, left, width)
                left -= start
                at += 1
                order.append(run)
                shape.append(run.n)
            x = w.slice(x, at, left, left + 1)
            x = w.reshape(x, (*w.shapes[x][:at], *w.shapes[x][at + 1 :]))
        broadcast = [run for run in box.runs if run.in_axis < 0]
        if broadcast:
            x = w.reshape(x, (*(1 for _ in broadcast), *shape))
            x = w.expand(x, (*(run.n for run in broadcast), *shape))
        order = broadcast + order
        wanted = [run for axis in range(len(self.target)) for run in box.on_output(axis)]
        x = w.permute(x, tuple(order.index(run) for run in wanted))
        return w.reshape(x, _shape(peeled, sizes))

    def _periods(self, x: int, axis: int, run: Run, first: int, width: int) -> tuple[int, int]:
        """Split `axis` into (periods of the run, positions within one); and where these start.

        Args:
            x: the value.
            axis: the axis that the run steps along.
            run: the steps.
            first: the position on the axis of the first element of the first step.
            width: the number of positions from there to the last element of that step.
        """
        w = self.writer
        period = run.in_step
        start = min(first, w.shapes[x][axis] - run.n * period)
        short = start < max(0, first + width - period)  # the input ends inside the last period
        if short:
            start = first
        stop = start + run.n * period
        if short and width == 1:  # only the first position of each period
            x = w.slice(x, axis, start, stop - period + 1, period)
            period = 1
        else:
            if short:
                x = w.lengthen(x, axis, stop)
            x = w.slice(x, axis, start, stop)
        shape = w.shapes[x]
        return w.reshape(x, (*shape[:axis], run.n, period, *shape[axis + 1 :])), start

    def assemble(self, found: list[Box], peeled: list[Shape], sizes: list[int]) -> int | None:
        """One value from boxes, with axes (*peeled, size) for every output axis.

        `peeled` runs are shared by all boxes, so they are axes of the result; offsets and sizes
        refer to what remains inside them.
        """
        w = self.writer
        if not found:
            return w.full(_shape(peeled, sizes))
        axes = range(len(sizes))
        below = [[box.on_output(a)[len(peeled[a]) :] for a in axes] for box in found]
        if len(found) == 1 and all(
            _covers(found[0].offsets[a], below[0][a], sizes[a]) for a in axes
        ):
            return self.read(found[0], peeled, sizes)
        for axis in axes:
            lengths = [span((r.n, r.out_step) for r in runs[axis]) + 1 for runs in below]
            starts = [box.offsets[axis] for box in found]
            groups = overlapping(
                (low, low + n, box) for low, n, box in zip(starts, lengths, found, strict=True)
            )
            if len(groups) > 1 or groups[0][:2] != (0, sizes[axis]):
                return self._side_by_side(groups, axis, peeled, sizes)
        for axis in axes:
            period = max((r.out_step for runs in below for r in runs[axis]), default=0)
            if period:
                node = self._period(
                    found, [runs[axis] for runs in below], axis, period, peeled, sizes
                )
                if node is not None:
                    return node
        return self._step_by_step(found, below, peeled, sizes)

    def _step_by_step(
        self,
        found: list[Box],
        below: list[list[list[Run]]],
        peeled: list[Shape],
        sizes: list[int],
    ) -> int | None:
        """Boxes that interleave in another way: cut the loop of the longest steps into its steps.

        Equal segments at equal distances are one box, whatever lies between them. Cut into single
        segments, they can be concatenated with what lies between.
        """
        for axis in range(len(sizes)):
            longest = [runs[axis][0] if runs[axis] else None for runs in below]
            reach = max((run.out_step for run in longest if run), default=0)
            parts: list[Box] = []
            for box, run in zip(found, longest, strict=True):
                steps = run.n if run and run.out_step == reach else 1
                if len(parts) + steps > _MOST:
                    break
                parts += (
                    [box.cut(run, k, k + 1) for k in range(steps)] if run and steps > 1 else [box]
                )
            else:
                if len(parts) > len(found):
                    node = self.assemble(parts, peeled, sizes)
                    if node is not None:
                        return node
        return None

    def _side_by_side(
        self,
        groups: list[tuple[int, int, list[Box]]],
        axis: int,
        peeled: list[Shape],
        sizes: list[int],
    ) -> int | None:
        """Groups that do not overlap along an axis: concatenate them, with filler between them."""
        parts, at = [], 0
        for low, high, members in groups:
            if low > at:
                parts.append(self.assemble([], peeled, _with(sizes, axis, low - at)))
            moved = [box.moved(axis, -low) for box in members]
            parts.append(self.assemble(moved, peeled, _with(sizes, axis, high - low)))
            at = high
        if at < sizes[axis]:
            parts.append(self.assemble([], peeled, _with(sizes, axis, sizes[axis] - at)))
        position = _position(peeled, axis)
        whole = [part for part in parts if part is not None]
        return self.writer.concatenate(whole, position) if len(whole) == len(parts) else None

    def _period(
        self,
        found: list[Box],
        below: list[list[Run]],
        axis: int,
        period: int,
        peeled: list[Shape],
        sizes: list[int],
    ) -> int | None:
        """All boxes repeat with `period` along the axis: make the repetition an extra axis."""
        ranges = []
        for box, runs in zip(found, below, strict=True):
            first, within = divmod(box.offsets[axis], period)
            outer = runs[0] if runs and runs[0].out_step == period else None
            inner = runs[1:] if outer else runs
            if within + span((r.n, r.out_step) for r in inner) >= period:
                return None
            ranges.append((first, first + (outer.n if outer else 1), outer))
        cuts = sorted({edge for first, last, _ in ranges for edge in (first, last)})
        if len(cuts) > 2:
            parts = []
            for box, (first, last, outer) in zip(found, ranges, strict=True):
                for low, high in itertools.pairwise(cuts):
                    if first <= low and high <= last:
                        parts.append(
                            box if outer is None else box.cut(outer, low - first, high - first)
                        )
            return self.assemble(parts, peeled, sizes) if len(parts) > len(found) else None
        first, last = cuts
        moved = [box.moved(axis, -first * period) for box in found]
        outer_axes = [(*p, last - first) if a == axis else p for a, p in enumerate(peeled)]
        node = self.assemble(moved, outer_axes, _with(sizes, axis, period))
        if node is None:
            return None
        w = self.writer
        position = _position(peeled, axis)
        shape = w.shapes[node]
        node = w.reshape(
            node, (*shape[:position], shape[position] * shape[position + 1], *shape[position + 2 :])
        )
        return w.slice(node, position, 0, sizes[axis])


def _covers(offset: int, runs: Sequence[Run], size: int) -> bool:
    """Whether runs from an offset on fill an axis."""
    return offset == 0 and math.prod(r.n for r in runs) == size


def _shape(peeled: Sequence[Shape], sizes: Sequence[int]) -> Shape:
    """The axes of a value: for every output axis its peeled runs, then its size inside them."""
    return tuple(n for outer, size in zip(peeled, sizes, strict=True) for n in (*outer, size))


def _position(peeled: Sequence[Shape], axis: int) -> int:
    """The index in `_shape(peeled, sizes)` of the size of an axis."""
    return sum(len(outer) + 1 for outer in peeled[:axis]) + len(peeled[axis])


def _with(sizes: list[int], axis: int, size: int) -> list[int]:
    return [size if a == axis else n for a, n in enumerate(sizes)]
