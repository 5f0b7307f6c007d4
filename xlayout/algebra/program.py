"""Program: a layout as a straight line of reshape, permute, slice and concatenate.

This is what a tracer sees, and what every framework can run, differentiate and batch. `Writer`
collects the steps and omits those that do nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from xlayout.algebra.shapes import Shape

__all__ = ["Program", "Step", "Writer"]


Step = tuple[str, tuple[int, ...], tuple[int, ...]]
"""(verb, sources, argument): a source is the number of an input, or that of a step plus the number
of inputs.

reshape: shape. permute: axes. slice: (axis, start, stop, step). concatenate: (axis,).
expand, full: shape. gather: (output,), the one verb that looks up a table.
"""


@dataclass(frozen=True, slots=True)
class Program:
    """Steps from `arity` inputs to `outputs` (numbers as in a step's sources)."""

    arity: int
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @property
    def gathers(self) -> bool:
        """Whether some output had to fall back on an index table."""
        return any(verb == "gather" for verb, _, _ in self.steps)

    def __str__(self) -> str:
        """One step a line, `%n` being the n-th value.

        >>> print(Program(1, (("reshape", (0,), (2, 3)), ("permute", (1,), (1, 0))), (2,)))
        %1 = reshape %0 (2, 3)
        %2 = permute %1 (1, 0)
        """
        lines = []
        for k, (verb, sources, argument) in enumerate(self.steps):
            names = ", ".join(f"%{s}" for s in sources)
            lines.append(f"%{self.arity + k} = {verb} {names}{' ' if names else ''}{argument}")
        return "\n".join(lines)


@dataclass
class Writer:
    """Steps written so far, with the shape of every value."""

    shapes: list[Shape]
    steps: list[Step] = field(default_factory=list)
    arity: int = field(init=False)

    def __post_init__(self) -> None:
        self.arity = len(self.shapes)

    def step(
        self, verb: str, sources: tuple[int, ...], argument: tuple[int, ...], shape: Shape
    ) -> int:
        """Add one step, and return the number of its value."""
        self.steps.append((verb, sources, argument))
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def full(self, shape: Shape) -> int:
        """An array of fill."""
        return self.step("full", (), shape, shape)

    def reshape(self, x: int, shape: Shape) -> int:
        """`x` with another shape; of two reshapes in a row only the last is kept."""
        if self.shapes[x] == shape:
            return x
        if x >= self.arity and self.steps[x - self.arity][0] == "reshape":
            return self.reshape(self.steps[x - self.arity][1][0], shape)
        return self.step("reshape", (x,), shape, shape)

    def permute(self, x: int, axes: tuple[int, ...]) -> int:
        """`x` with its axes in another order."""
        if axes == tuple(range(len(axes))):
            return x
        return self.step("permute", (x,), axes, tuple(self.shapes[x][a] for a in axes))

    def slice(self, x: int, axis: int, start: int, stop: int, step: int = 1) -> int:
        """A stretch of one axis of `x`."""
        shape = self.shapes[x]
        if (start, stop, step) == (0, shape[axis], 1):
            return x
        size = -((start - stop) // step)  # `len` of a range gives up at 2^63
        return self.step(
            "slice", (x,), (axis, start, stop, step), (*shape[:axis], size, *shape[axis + 1 :])
        )

    def lengthen(self, x: int, axis: int, size: int) -> int:
        """`x` with filler at the end of an axis."""
        shape = self.shapes[x]
        filler = self.full((*shape[:axis], size - shape[axis], *shape[axis + 1 :]))
        return self.concatenate((x, filler), axis)

    def expand(self, x: int, shape: Shape) -> int:
        """`x` with axes of size 1 repeated."""
        return x if self.shapes[x] == shape else self.step("expand", (x,), shape, shape)

    def concatenate(self, parts: Sequence[int], axis: int) -> int:
        """At least two values, concatenated along an axis; vectors as columns if one is empty.

        Torch leaves empty vectors out, and with them what `vmap` maps over.
        """
        if any(self.shapes[part] == (0,) for part in parts):
            columns = [self.reshape(part, (*self.shapes[part], 1)) for part in parts]
            column = self.concatenate(columns, 0)
            return self.reshape(column, self.shapes[column][:1])
        first = self.shapes[parts[0]]
        total = sum(self.shapes[p][axis] for p in parts)
        return self.step(
            "concatenate", tuple(parts), (axis,), (*first[:axis], total, *first[axis + 1 :])
        )

    def concatenated(self, first: int) -> int:
        """How many elements are concatenated by the steps that make the values from `first` on."""
        made = zip(self.steps[first - self.arity :], self.shapes[first:], strict=True)
        return sum(math.prod(shape) for (verb, _, _), shape in made if verb == "concatenate")

    def finish(self, outputs: Sequence[int]) -> Program:
        """The program, without unused steps: reshapes before another, and failed attempts."""
        used, todo = set[int](), list(outputs)
        while todo:
            x = todo.pop()
            if x >= self.arity and x not in used:
                used.add(x)
                todo += self.steps[x - self.arity][1]
        number = {x: x for x in range(self.arity)}
        steps: list[Step] = []
        for x in sorted(used):
            verb, sources, argument = self.steps[x - self.arity]
            number[x] = self.arity + len(steps)
            steps.append((verb, tuple(number[s] for s in sources), argument))
        return Program(self.arity, tuple(steps), tuple(number[x] for x in outputs))
