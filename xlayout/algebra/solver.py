"""Solver: sizes of named axes from the shapes of the inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from xlayout.algebra.grammar import (
    Factor,
    Group,
    Name,
    One,
    Pattern,
    Product,
    names,
    quoted,
)
from xlayout.algebra.shapes import Shape, divisors, in_short

__all__ = ["Solver", "size_of"]


def size_of(factor: Factor, known: Mapping[str, int]) -> int:
    """The size of a factor whose names are all known."""
    if isinstance(factor, Name):
        return known[factor.name]
    if isinstance(factor, Group):
        return sum(math.prod(size_of(f, known) for f in s) for s in factor.summands)
    return 1


class Solver:
    """Sizes from shapes: each axis is an equation, solved once it has one unknown."""

    def __init__(self, pattern: Pattern, known: dict[str, int]) -> None:
        self.pattern = pattern
        self.known = known

    def run(self, shapes: Sequence[Shape]) -> None:
        """Determine all sizes that the shapes determine; raise if they contradict known sizes."""
        for number, (array, shape) in enumerate(zip(self.pattern.inputs, shapes, strict=True)):
            if len(array) != len(shape):
                raise self.pattern.wrong(
                    self.pattern.position(number),
                    f"{len(array)} axes in this input, the array has shape {shape}",
                )
        before = -1
        while before != len(self.known):
            before = len(self.known)
            for array, shape in zip(self.pattern.inputs, shapes, strict=True):
                for factor, n in zip(array, shape, strict=True):
                    self._factor(factor, n)

    def _unknown(self, factor: Factor) -> bool:
        return any(n.name not in self.known for n in names((factor,)))

    def _factor(self, factor: Factor, n: int) -> None:
        if isinstance(factor, Name):
            if self.known.setdefault(factor.name, n) != n:
                have = self.known[factor.name]
                raise self.pattern.wrong(
                    factor.at, f"{quoted(factor.name)} is {have}, but the axis here is {n}"
                )
        elif isinstance(factor, One):
            if n != 1:
                raise self.pattern.wrong(factor.at, f"1 stands for an axis of size {n}")
        elif isinstance(factor, Group):
            self._group(factor, n)

    def _group(self, group: Group, n: int) -> None:
        open_summands, rest = [], n
        for summand in group.summands:
            if any(self._unknown(f) for f in summand):
                open_summands.append(summand)
            else:
                rest -= math.prod(size_of(f, self.known) for f in summand)
        if rest < 0 or (not open_summands and rest):
            made = "this makes" if len(group.summands) == 1 else "the segments add up to"
            raise self.pattern.wrong(group.at, f"{made} {n - rest}, the axis is {n}")
        if len(open_summands) == 1:
            self._product(open_summands[0], rest, group.at)

    def _product(self, product: Product, n: int, at: int) -> None:
        unknown, known = [], 1
        for factor in product:
            if self._unknown(factor):
                unknown.append(factor)
            else:
                known *= size_of(factor, self.known)
        if len(unknown) != 1 or (known == 0 and n == 0):
            return
        if known == 0 or n % known:
            raise self.pattern.wrong(
                at, f"{n} does not divide by {known}; it does by {in_short(divisors(n))}"
            )
        self._factor(unknown[0], n // known)
