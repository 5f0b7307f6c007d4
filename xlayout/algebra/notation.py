"""Notation: a layout as text that `Layout.parse` reads back to an equal layout.

A bijection that follows the axes is a pattern with its sizes, `(a=2 b=3) c=4 -> (b a) c`.
Everything else is written piece by piece, `(4,) -> (6,) {0<-0: (4, 1, 1)}`: output offset <- input
offset, then the loops.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from xlayout.algebra import pattern
from xlayout.algebra.compose import same_pairs
from xlayout.algebra.naming import pattern_of
from xlayout.algebra.piece import Parts, Piece
from xlayout.algebra.shapes import MOST_DIGITS, Shape, as_shapes
from xlayout.errors import PatternError

__all__ = ["is_pieces", "read", "write"]

_MOST_NAMED = 64  # pieces; a longer pattern would be unreadable


def write(in_shapes: Sequence[Shape], out_shapes: Sequence[Shape], pieces: Sequence[Piece]) -> str:
    """The notation of a layout."""
    total = sum(p.size for p in pieces)
    sizes = {sum(map(math.prod, shapes)) for shapes in (in_shapes, out_shapes)}
    if pieces and sizes == {total} and len(pieces) <= _MOST_NAMED:
        text = pattern_of(in_shapes, out_shapes, pieces)
        if text is not None and _describes(text, in_shapes, out_shapes, pieces):
            return text
    return _as_pieces(in_shapes, out_shapes, pieces)


def _describes(
    text: str, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape], pieces: Sequence[Piece]
) -> bool:
    try:
        ins, outs, found = pattern.solve(text, None, {})
    except PatternError:  # a candidate may name two segments alike
        return False
    same_shapes = (ins, outs) == (tuple(in_shapes), tuple(out_shapes))
    return same_shapes and same_pairs(found, tuple(pieces))


def _as_pieces(
    in_shapes: Sequence[Shape], out_shapes: Sequence[Shape], pieces: Sequence[Piece]
) -> str:
    boxed = " ".join(
        f"{{{p.out_offset}<-{p.in_offset}:{''.join(f' {loop}' for loop in p.loops)}}}"
        for p in pieces
    )
    return f"{_shapes(in_shapes)} -> {_shapes(out_shapes)} {boxed or '{}'}"


def _shapes(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(str, shapes))


_N = rf"\d{{1,{MOST_DIGITS}}}"
_PIECE = re.compile(rf"\{{(?:({_N})<-({_N}):((?: ?\({_N}, {_N}, {_N}\))*))?\}}")
_SHAPE = re.compile(rf"\(((?:{_N}(?:, {_N})*,?)?)\)")


def is_pieces(text: object) -> bool:
    """Whether a text is written piece by piece."""
    return isinstance(text, str) and "{" in text


def read(text: str, shape: Any, sizes: Mapping[str, int]) -> Parts:
    """The parts of a layout written piece by piece.

    Raises:
        PatternError: for text that `write` does not write, another shape than it has, or sizes,
            since it has no names.
    """
    head = text.partition("{")[0]
    sides = head.split("->")
    body = text[len(head) :]
    if (
        len(sides) != 2
        or _PIECE.sub("", body).strip()
        or any(_SHAPE.sub("", s).strip(" ,") for s in sides)
    ):
        raise PatternError(
            f"layout: cannot read {text!r}; wanted shapes -> shapes "
            "{out<-in: (n, in stride, out stride) ...}"
        )
    ins, outs = (tuple(_ints(s) for s in _SHAPE.findall(side)) for side in sides)
    if shape is not None:
        shapes = as_shapes(shape)
        if shapes != ins:
            raise PatternError(f"shape: {_shapes(shapes)}; {text!r} takes {_shapes(ins)}")
    if sizes:
        raise PatternError(f"sizes: {', '.join(sizes)}; {text!r} has no named axes")
    pieces = []
    for out_offset, in_offset, loops in _PIECE.findall(body):
        if out_offset:
            found = [_ints(loop) for loop in _SHAPE.findall(loops)]
            pieces.append(
                Piece(int(in_offset), int(out_offset), tuple((n, x, z) for n, x, z in found))
            )
    return ins, outs, tuple(pieces)


def _ints(text: str) -> Shape:
    return tuple(int(n) for n in re.findall(r"\d+", text))
