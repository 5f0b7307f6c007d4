"""Tuned: a program rewritten for eager calls, with fewer steps and outputs that share no memory.

Three verbs exist only here:

    own                           a row-major copy. It comes before the last reshape, which is then
                                  a view (else that depends on strides), but after one that drops
                                  axes of a slice, which is always a view
    pad: (axis, before, after)    instead of concatenating filler
    stack: (axis, rank)           instead of concatenating arrays with an added axis of size 1

Also, arrays that are reshaped only to be concatenated are concatenated first, and reshaped once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xlayout.algebra import Layout
from xlayout.algebra.program import Program, Step, Writer
from xlayout.algebra.shapes import Shape

__all__ = ["owned", "tuned"]

_FRESH = ("concatenate", "full", "gather", "pad", "own", "stack")


def tuned(program: Program, layout: Layout, *, immutable: bool) -> Program:
    """The same values by other steps; outputs share no memory that could be written into."""
    writer, outputs = _rewritten(program, layout, _concatenate)
    return writer.finish(
        [_own(writer, k) if k < program.arity or not immutable else k for k in outputs]
    )


def owned(program: Program, layout: Layout) -> Program:
    """The same steps, with a copy of every output that would share memory with an input."""
    writer, outputs = _rewritten(
        program, layout, lambda w, parts, axis, _: w.concatenate(parts, axis)
    )
    return writer.finish([_own(writer, k) for k in outputs])


_Concatenate = Callable[[Writer, tuple[int, ...], int, Sequence[Shape]], int]


def _rewritten(
    program: Program, layout: Layout, concatenate: _Concatenate
) -> tuple[Writer, list[int]]:
    """The program with another way to concatenate, and the numbers of its outputs."""
    writer = Writer(list(layout.in_shapes))
    numbers = list(range(program.arity))
    for verb, sources, argument in program.steps:
        given = tuple(numbers[s] for s in sources)
        if verb == "concatenate":
            numbers.append(concatenate(writer, given, argument[0], layout.out_shapes))
        else:
            numbers.append(_copy(writer, (verb, given, argument), layout))
    return writer, [numbers[k] for k in program.outputs]


def _copy(writer: Writer, step: Step, layout: Layout) -> int:
    """Write any other step as it is."""
    verb, sources, argument = step
    if verb == "gather":
        return writer.step(verb, sources, argument, layout.out_shapes[argument[0]])
    if verb == "full":
        return writer.full(argument)
    if verb == "slice":
        return writer.slice(sources[0], *argument)
    number: int = getattr(writer, verb)(sources[0], argument)
    return number


def _concatenate(
    writer: Writer, parts: tuple[int, ...], axis: int, outputs: Sequence[Shape]
) -> int:
    """Concatenate by the fewest steps: one "pad", one "stack", or one reshape after it."""
    kept = [k for k, part in enumerate(parts) if _verb(writer, part) != "full"]
    if len(kept) == 1:
        sizes = [writer.shapes[part][axis] for part in parts]
        before, after = sum(sizes[: kept[0]]), sum(sizes[kept[0] + 1 :])
        shape = list(writer.shapes[parts[kept[0]]])
        shape[axis] += before + after
        return writer.step("pad", (parts[kept[0]],), (axis, before, after), tuple(shape))
    number = writer.concatenate(parts, axis)
    if all(_verb(writer, part) == "reshape" for part in parts):
        wholes = [writer.steps[part - writer.arity][1][0] for part in parts]
        rows = math.prod(writer.shapes[number][:axis])
        stacked = _stack(writer, wholes, rows, outputs)
        if stacked is not None:
            return writer.reshape(stacked, writer.shapes[number])
        found = _axis_after(rows, [writer.shapes[whole] for whole in wholes])
        if found is not None:
            return writer.reshape(writer.concatenate(wholes, found), writer.shapes[number])
    return number


def _stack(writer: Writer, wholes: list[int], rows: int, outputs: Sequence[Shape]) -> int | None:
    """The stack of these arrays along the axis after `rows` elements, if it is itself an output."""
    shapes = {writer.shapes[whole] for whole in wholes}
    shape = shapes.pop()
    for axis in range(len(shape) + 1):
        made = (*shape[:axis], len(wholes), *shape[axis:])
        if not shapes and math.prod(shape[:axis]) == rows and made in outputs:
            return writer.step("stack", tuple(wholes), (axis, len(made)), made)
    return None


def _axis_after(rows: int, shapes: Sequence[Shape]) -> int | None:
    """The axis after `rows` elements, if arrays of these shapes can be concatenated along it."""
    first = shapes[0]
    for axis in range(len(first)):
        if math.prod(first[:axis]) == rows:
            rests = {(len(s), s[:axis], s[axis + 1 :]) for s in shapes}
            return axis if len(rests) == 1 else None
    return None


def _own(writer: Writer, number: int) -> int:
    """The value in memory of its own: itself if fresh, else copied before its last reshape."""
    shape = writer.shapes[number]
    if _drops_axes(writer, number):
        return writer.step("own", (number,), (), shape)
    while _verb(writer, number) == "reshape":
        number = writer.steps[number - writer.arity][1][0]
    if _verb(writer, number) in _FRESH:
        return writer.reshape(number, shape)
    return writer.reshape(writer.step("own", (number,), (), writer.shapes[number]), shape)


def _drops_axes(writer: Writer, number: int) -> bool:
    """Whether a value is a slice with fewer axes of size 1, which is a view for any strides."""
    if _verb(writer, number) != "reshape":
        return False
    source = writer.steps[number - writer.arity][1][0]
    longer = [n for n in writer.shapes[source] if n > 1]
    return _verb(writer, source) == "slice" and longer == [
        n for n in writer.shapes[number] if n > 1
    ]


def _verb(writer: Writer, number: int) -> str:
    return writer.steps[number - writer.arity][0] if number >= writer.arity else "input"
