"""Boxes: pieces seen through the axes of the arrays they connect.

A piece pairs flat positions. To run it with reshape, slice and concatenate, each of its loops must
run along one axis of the input and one axis of the output; a `Box` is a piece cut that way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter, lt
from typing import TypeVar

from xlayout.algebra.piece import Loop, Piece
from xlayout.algebra.strided import row_major

__all__ = ["Box", "Run", "boxes", "overlapping"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """`n` steps along one input axis and one output axis; `in_axis` is -1 for a broadcast."""

    n: int
    in_axis: int
    in_step: int
    out_axis: int
    out_step: int


@dataclass(frozen=True, slots=True)
class Box:
    """A piece whose loops each follow one axis; offsets and steps count along those axes."""

    source: int
    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    runs: tuple[Run, ...]

    def on_input(self, axis: int) -> list[Run]:
        """The runs along an input axis, largest step first."""
        return sorted((r for r in self.runs if r.in_axis == axis), key=lambda r: -r.in_step)

    def on_output(self, axis: int) -> list[Run]:
        """The runs along an output axis, largest step first."""
        return sorted((r for r in self.runs if r.out_axis == axis), key=lambda r: -r.out_step)

    def moved(self, axis: int, by: int) -> Box:
        """The same box, shifted along an output axis."""
        offsets = list(self.offsets)
        offsets[axis] += by
        return replace(self, offsets=tuple(offsets))

    def cut(self, run: Run, first: int, last: int) -> Box:
        """Only steps `first` to `last` (excluded) of one run."""
        starts, offsets = list(self.starts), list(self.offsets)
        if run.in_axis >= 0:
            starts[run.in_axis] += first * run.in_step
        offsets[run.out_axis] += first * run.out_step
        runs = tuple(r for r in self.runs if r is not run)
        if last - first > 1:
            runs = (*runs, replace(run, n=last - first))
        return Box(self.source, tuple(starts), tuple(offsets), runs)


def boxes(
    source: int, pieces: Sequence[Piece], in_shape: Sequence[int], out_shape: Sequence[int]
) -> list[Box] | None:
    """One box per piece, or None if some loop cannot be cut at axis boundaries."""
    found = []
    for piece in pieces:
        box = _box(source, piece, in_shape, out_shape)
        if box is None:
            return None
        found.append(box)
    return found


def overlapping(intervals: Iterable[tuple[int, int, T]]) -> list[tuple[int, int, list[T]]]:
    """Group (first, end, member) intervals that overlap: (first, end, members) of each group."""
    groups: list[tuple[int, int, list[T]]] = []
    for first, end, member in sorted(intervals, key=lambda interval: interval[:2]):
        if groups and first < groups[-1][1]:
            low, high, members = groups[-1]
            groups[-1] = (low, max(high, end), [*members, member])
        else:
            groups.append((first, end, [member]))
    return groups


def _box(
    source: int, piece: Piece, in_shape: Sequence[int], out_shape: Sequence[int]
) -> Box | None:
    """A piece as a box, or None if a loop cannot be cut at axis boundaries."""
    ins, outs = _axes(in_shape), _axes(out_shape)
    loops: list[Loop] | None = list(piece.loops)
    for side, axes in ((1, ins), (2, outs)):
        loops = None if loops is None else _cut(loops, side, [step for step, _, _ in axes])
    if loops is None:
        return None
    starts, offsets = _digits(piece.in_offset, in_shape), _digits(piece.out_offset, out_shape)
    runs = []
    last_in, last_out = list(starts), list(offsets)
    for n, x, z in loops:
        in_axis, in_step = _axis_of(x, ins) if x else (-1, 0)
        out_axis, out_step = _axis_of(z, outs)
        runs.append(Run(n, in_axis, in_step, out_axis, out_step))
        if x:
            last_in[in_axis] += (n - 1) * in_step
        last_out[out_axis] += (n - 1) * out_step
    fits = all(map(lt, last_in, in_shape)) and all(map(lt, last_out, out_shape))
    return Box(source, starts, offsets, tuple(runs)) if fits else None


def _axes(shape: Sequence[int]) -> list[tuple[int, int, int]]:
    """(flat stride, size, number) of each axis of more than one element, last axis first."""
    strides = row_major(shape)
    return [(strides[a], shape[a], a) for a in range(len(shape) - 1, -1, -1) if shape[a] > 1]


def _cut(loops: list[Loop], side: int, boundaries: list[int]) -> list[Loop] | None:
    """Split loops so that none crosses a boundary; None if that is impossible.

    Each boundary is a multiple of those before it.
    """
    from bisect import bisect_left, bisect_right  # not loaded by `import xlayout`

    result = []
    for loop in loops:
        step = loop[side]
        first, last = bisect_right(boundaries, step), bisect_left(boundaries, loop[0] * step)
        if first and step % boundaries[first - 1]:
            return None
        for boundary in reversed(boundaries[first:last]):
            n, x, z = loop
            inner, rest = divmod(boundary, step)
            if rest or n % inner:
                return None
            result.append((n // inner, x * inner, z * inner))
            loop = inner, x, z
        result.append(loop)
    return result


def _digits(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The coordinates of a flat position along each axis."""
    return tuple(position // s % n for s, n in zip(row_major(shape), shape, strict=True))


def _axis_of(stride: int, axes: list[tuple[int, int, int]]) -> tuple[int, int]:
    """Which axis a flat stride runs along, and by how much."""
    from bisect import bisect_right

    at = bisect_right(axes, stride, key=itemgetter(0)) - 1
    step, n, axis = axes[at] if at >= 0 else (0, 0, -1)
    if not step <= stride < step * n:
        raise AssertionError(f"stride {stride} outside the axes {axes} of (stride, size, number)")
    return axis, stride // step
