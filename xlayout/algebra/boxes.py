"""Boxes: pieces seen through the axes of the arrays they connect.

A piece pairs flat positions. To run it with reshape, slice and concatenate, each of its loops has
to run along one axis of the input and one axis of the output; a `Box` is a piece cut that way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from xlayout.algebra.piece import Piece, span
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

    def end(self, axis: int) -> int:
        """One past the last position along an output axis."""
        return self.offsets[axis] + span((r.n, r.out_step) for r in self.on_output(axis)) + 1

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
    """One box per piece, or None when some loop cannot be cut at the ends of the axes."""
    found = []
    for piece in pieces:
        box = _box(source, piece, in_shape, out_shape)
        if box is None:
            return None
        found.append(box)
    return found


def overlapping(stretches: Iterable[tuple[int, int, T]]) -> list[tuple[int, int, list[T]]]:
    """What lies from `first` to `end` each, grouped where that overlaps: (first, end, members)."""
    groups: list[tuple[int, int, list[T]]] = []
    for first, end, member in sorted(stretches, key=lambda stretch: stretch[:2]):
        if groups and first < groups[-1][1]:
            low, high, members = groups[-1]
            groups[-1] = (low, max(high, end), [*members, member])
        else:
            groups.append((first, end, [member]))
    return groups


def _box(
    source: int, piece: Piece, in_shape: Sequence[int], out_shape: Sequence[int]
) -> Box | None:
    loops = list(piece.loops)
    for side, shape in ((1, in_shape), (2, out_shape)):
        for boundary in row_major(shape):
            cut = _cut(loops, side, boundary)
            if cut is None:
                return None
            loops = cut
    starts, offsets = _digits(piece.in_offset, in_shape), _digits(piece.out_offset, out_shape)
    runs = []
    for n, x, z in loops:
        in_axis, in_step = _axis_of(x, in_shape) if x else (-1, 0)
        out_axis, out_step = _axis_of(z, out_shape)
        runs.append(Run(n, in_axis, in_step, out_axis, out_step))
    box = Box(source, starts, offsets, tuple(runs))
    fits = all(
        starts[a] + span((r.n, r.in_step) for r in box.on_input(a)) < n
        for a, n in enumerate(in_shape)
    ) and all(box.end(a) <= n for a, n in enumerate(out_shape))
    return box if fits else None


def _cut(
    loops: list[tuple[int, int, int]], side: int, boundary: int
) -> list[tuple[int, int, int]] | None:
    """Make `boundary` a place where one loop ends and another begins."""
    result = []
    for loop in loops:
        n, step = loop[0], loop[side]
        if step % boundary == 0 or n * step <= boundary:
            result.append(loop)
            continue
        inner, rest = divmod(boundary, step)
        if rest or not inner or n % inner:
            return None
        result += [(n // inner, loop[1] * inner, loop[2] * inner), (inner, loop[1], loop[2])]
    return result


def _digits(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(position // s % n for s, n in zip(row_major(shape), shape, strict=True))


def _axis_of(stride: int, shape: Sequence[int]) -> tuple[int, int]:
    """Which axis a flat stride runs along, and by how much."""
    for axis, (s, n) in enumerate(zip(row_major(shape), shape, strict=True)):
        if n > 1 and s <= stride < s * n:
            return axis, stride // s
    raise AssertionError(
        f"stride {stride} outside shape {tuple(shape)} of {math.prod(shape)} elements"
    )
