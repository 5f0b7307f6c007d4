"""Pattern: from einops-like text and shapes to the parts of a layout.

A `+` makes an axis of segments. Each way to pick one segment from every sum of an array is a
*branch*: a plain product of names with an offset. The branches on both sides that have the same
names make one piece.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlayout.algebra.compose import MAX_PIECES
from xlayout.algebra.grammar import (
    Dots,
    Factor,
    Group,
    Name,
    Pattern,
    Product,
    fail,
    names,
    quoted,
    read,
)
from xlayout.algebra.merge import merge
from xlayout.algebra.piece import Parts, Piece
from xlayout.algebra.shapes import Shape, as_shapes, each_shape, integer
from xlayout.algebra.solver import Solver, size_of

__all__ = ["solve"]

_Branch = tuple[int, dict[str, int]]
"""(offset, {name: stride}) in a flat space."""

_Key = frozenset[str]
"""The names of a branch, which identify it on both sides."""


def solve(text: str, shape: Any, sizes: Mapping[str, int]) -> Parts:
    """The shapes and pieces that a pattern describes.

    Args:
        text: the pattern.
        shape: one shape, several shapes, or None when every size is in `text` or `sizes`.
        sizes: sizes by name.

    Raises:
        PatternError: if the text cannot be read, the sizes do not fit or do not determine every
            axis, or the two sides do not hold the same elements.
    """
    pattern = read(text)
    shapes = _shapes(pattern, shape)
    pattern = _without_dots(pattern, shapes)
    _check_names(pattern)
    _check_branches(pattern)
    known = _given(pattern, sizes)
    if shapes is not None:
        Solver(pattern, known).run(shapes)
    _check_known(pattern, known)
    ins = _branches(pattern.inputs, known)
    outs = _branches(pattern.outputs, known)
    return (
        tuple(tuple(size_of(f, known) for f in array) for array in pattern.inputs),
        tuple(tuple(size_of(f, known) for f in array) for array in pattern.outputs),
        merge(_pieces(ins, outs, known)),
    )


def _shapes(pattern: Pattern, shape: Any) -> tuple[Shape, ...] | None:
    if shape is None:
        return None
    count = len(pattern.inputs)
    # With several inputs each int is a shape: two vectors may be given as (3, 4).
    shapes = as_shapes(shape) if count == 1 else each_shape(shape, "shape")
    if len(shapes) != count:
        few = len(shapes) < count
        raise pattern.wrong(
            pattern.position(len(shapes)) if few else pattern.text.index("->"),
            f"{count} input{'s' * (count != 1)}, {len(shapes)} arrays given; "
            + ("this one has none" if few else "name the others here"),
        )
    return shapes


def _without_dots(pattern: Pattern, shapes: Sequence[Shape] | None) -> Pattern:
    """`...` replaced by as many names as the inputs have axes left."""
    count = _dots_count(pattern, shapes)
    inputs = tuple(_named_dots(pattern, a, count, merge_allowed=False) for a in pattern.inputs)
    outputs = tuple(_named_dots(pattern, a, count, merge_allowed=True) for a in pattern.outputs)
    return Pattern(pattern.text, inputs, outputs)


def _dots_count(pattern: Pattern, shapes: Sequence[Shape] | None) -> int | None:
    """How many axes `...` stands for; None if no input has it."""
    counts = {}
    for k, array in enumerate(pattern.inputs):
        dots = [f for f in array if isinstance(f, Dots)]
        if len(dots) > 1:
            raise pattern.wrong(dots[1].at, "'...' twice in one input")
        if dots and shapes is None:
            raise pattern.wrong(dots[0].at, "'...' needs the shape of the input")
        if dots and shapes is not None:
            counts[len(shapes[k]) - (len(array) - 1)] = dots[0].at
    if len(counts) > 1 or any(count < 0 for count in counts):
        raise pattern.wrong(
            min(counts.values()),
            f"'...' would stand for {sorted(counts)} axes; one count >= 0 wanted",
        )
    return next(iter(counts), None)


def _named_dots(
    pattern: Pattern,
    product: Product,
    count: int | None,
    *,
    merge_allowed: bool,
    merged: bool = False,
) -> Product:
    """A product with `count` names for its `...`, which may be inside a parenthesis: merged."""
    result: list[Factor] = []
    for f in product:
        if isinstance(f, Dots):
            if merged and not merge_allowed:
                raise pattern.wrong(f.at, "'...' inside a parenthesis of an input")
            if count is None:
                raise pattern.wrong(f.at, "'...' stands on one side only")
            result += [Name(f"...{k}", None, f.at) for k in range(count)]
        elif isinstance(f, Group):
            inner = (
                _named_dots(pattern, s, count, merge_allowed=merge_allowed, merged=True)
                for s in f.summands
            )
            result.append(Group(tuple(inner), f.at))
        else:
            result.append(f)
    return tuple(result)


def _check_names(pattern: Pattern) -> None:
    sides = ("left", pattern.inputs, pattern.outputs), ("right", pattern.outputs, pattern.inputs)
    for where, here, there in sides:
        others = {n.name for array in there for n in names(array)}
        for array in here:
            for n in names(array):
                if n.name not in others:
                    shown = "..." if n.name.startswith("...") else n.name
                    raise pattern.wrong(
                        n.at, f"{shown!r} stands on the {where} only; both sides hold the same axes"
                    )


def _check_branches(pattern: Pattern) -> None:
    for array in (*pattern.inputs, *pattern.outputs):
        ways = _ways(array)
        if ways > MAX_PIECES:
            first = next(f for f in array if isinstance(f, Group) and len(f.summands) > 1)
            raise pattern.wrong(
                first.at,
                f"its sums make {ways} pieces, the limit is {MAX_PIECES}; "
                "take the axes one after the other instead",
            )
    left, right = (_by_names(pattern, output=output) for output in (False, True))
    for key, at in [*left.items(), *right.items()]:
        if key not in left or key not in right:
            side, other = ("left", "right") if key in left else ("right", "left")
            raise pattern.wrong(
                at,
                f"the elements ({_shown(key)}) on the {side} have no place on the {other}",
            )


def _by_names(pattern: Pattern, *, output: bool) -> dict[_Key, int]:
    """Where the branches of a side begin, by their names.

    Raises:
        PatternError: for a branch that has a name twice, or two that have the same names.
    """
    found: dict[_Key, int] = {}
    arrays = pattern.outputs if output else pattern.inputs
    for number, choice in ((k, way) for k, array in enumerate(arrays) for way in _choices(array)):
        # A whole array may be without names; a segment has at least one.
        begin = choice[0].at if choice else pattern.position(number, output=output)
        here: set[str] = set()
        for n in choice:
            if n.name in here:
                raise pattern.wrong(n.at, f"{quoted(n.name)} twice in one array")
            here.add(n.name)
        key = frozenset(here)
        if key in found:
            raise pattern.wrong(
                choice[-1].at if choice else begin,
                f"({_shown(key)}) stands twice on this side; give each segment its own name",
            )
        found[key] = begin
    return found


def _ways(product: Product) -> int:
    """How many ways there are to pick one segment from every sum."""
    return math.prod(sum(map(_ways, f.summands)) for f in product if isinstance(f, Group))


def _choices(product: Product) -> Iterator[tuple[Name, ...]]:
    """The names of each way to pick one segment from every sum."""
    ways = [
        [choice for summand in f.summands for choice in _choices(summand)]
        if isinstance(f, Group)
        else [(f,) if isinstance(f, Name) else ()]
        for f in product
    ]
    for picked in itertools.product(*ways):
        yield tuple(itertools.chain.from_iterable(picked))


def _shown(key: _Key) -> str:
    return " ".join(sorted({"..." if n.startswith("...") else n for n in key})) or "1"


def _given(pattern: Pattern, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that the caller or the text gives, which must agree."""
    known: dict[str, int] = {}
    everywhere = [n for array in (*pattern.inputs, *pattern.outputs) for n in names(array)]
    named = {n.name for n in everywhere}
    for name, size in sizes.items():
        if name not in named:
            wrong = f"{name}: size {size!r} given, but no axis here has that name"
            raise fail(pattern.text, pattern.position(0), wrong)
        known[name] = integer(size, name)
    for n in everywhere:
        if n.size is not None and known.setdefault(n.name, n.size) != n.size:
            raise pattern.wrong(n.at, f"{n.name!r} is {n.size} here and {known[n.name]} elsewhere")
    return known


def _check_known(pattern: Pattern, known: Mapping[str, int]) -> None:
    every = (n for array in pattern.inputs for n in names(array))
    if missing := [n for n in every if n.name not in known]:
        listed = ", ".join(dict.fromkeys(n.name for n in missing))
        raise pattern.wrong(
            missing[0].at, f"the shapes leave {listed} open; give sizes, as in {missing[0].name}=2"
        )


def _branches(arrays: Sequence[Product], known: Mapping[str, int]) -> dict[_Key, _Branch]:
    """The branches of all arrays of a side, in its flat space."""
    found: list[_Branch] = []
    base = 0
    for array in arrays:
        found += [(base + offset, strides) for offset, strides in _expand(array, 1, known)]
        base += math.prod(size_of(f, known) for f in array)
    return {frozenset(strides): (offset, strides) for offset, strides in found}


def _expand(product: Product, stride: int, known: Mapping[str, int]) -> list[_Branch]:
    """The branches of a product whose last factor has this stride."""
    branches: list[_Branch] = [(0, {})]
    for factor in reversed(product):
        if isinstance(factor, Name):
            for _, strides in branches:  # no two branches share a dict
                strides[factor.name] = stride
        elif isinstance(factor, Group):
            inner: list[_Branch] = []
            offset = 0
            for summand in factor.summands:
                inner += [(offset + o, s) for o, s in _expand(summand, stride, known)]
                offset += stride * math.prod(size_of(f, known) for f in summand)
            branches = [(a + b, x | y) for a, x in inner for b, y in branches]
        stride *= size_of(factor, known)
    return branches


def _pieces(
    ins: dict[_Key, _Branch], outs: dict[_Key, _Branch], known: Mapping[str, int]
) -> list[Piece]:
    """One piece for each branch, with one loop for each of its names."""
    pieces = []
    for key, (in_offset, in_strides) in ins.items():
        out_offset, out_strides = outs[key]
        loops = tuple((known[n], in_strides[n], out_strides[n]) for n in sorted(key))
        pieces.append(Piece(in_offset, out_offset, loops))
    return pieces
