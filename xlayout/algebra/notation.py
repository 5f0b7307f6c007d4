"""Notation: a layout as text that `Layout.parse` reads back to an equal layout.

A single box that follows the axes is a pattern with its sizes, `(a=2 b=3) c=4 -> (b a) c`.
Everything else is written piece by piece, `(3,), (2,) -> (5,) {0<-0: (5, 1, 1)}`: output offset <-
input offset, then the loops.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xlayout.algebra.boxes import Box, boxes
from xlayout.algebra.piece import Piece
from xlayout.algebra.shapes import Shape
from xlayout.errors import PatternError

__all__ = ["is_pieces", "read", "write"]


def write(in_shapes: Sequence[Shape], out_shapes: Sequence[Shape], pieces: Sequence[Piece]) -> str:
    """The notation of a layout."""
    if len(in_shapes) == len(out_shapes) == len(pieces) == 1:
        (piece,) = pieces
        found = boxes(0, pieces, in_shapes[0], out_shapes[0])
        if (
            found
            and not piece.repeats
            and piece.in_end == _size(in_shapes[0]) == _size(out_shapes[0]) == piece.size
        ):
            return _as_pattern(found[0], in_shapes[0], out_shapes[0])
    return _as_pieces(in_shapes, out_shapes, pieces)


def _size(shape: Shape) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _as_pattern(box: Box, in_shape: Shape, out_shape: Shape) -> str:
    ordered = [run for axis in range(len(in_shape)) for run in box.on_input(axis)]
    name = {run: _name(k) for k, run in enumerate(ordered)}
    left = [[f"{name[r]}={r.n}" for r in box.on_input(a)] for a in range(len(in_shape))]
    right = [[name[r] for r in box.on_output(a)] for a in range(len(out_shape))]
    return f"{_axes(left)} -> {_axes(right)}"


def _name(k: int) -> str:
    return chr(ord("a") + k % 26) + (str(k // 26) if k >= 26 else "")


def _axes(axes: list[list[str]]) -> str:
    return " ".join(
        "1" if not axis else axis[0] if len(axis) == 1 else f"({' '.join(axis)})" for axis in axes
    )


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


_PIECE = re.compile(r"\{(?:(\d+)<-(\d+):((?: ?\(\d+, \d+, \d+\))*))?\}")
_SHAPE = re.compile(r"\(((?:\d+(?:, \d+)*,?)?)\)")


def is_pieces(text: object) -> bool:
    """Whether a text is written piece by piece."""
    return isinstance(text, str) and "{" in text


def read(text: str) -> tuple[tuple[Shape, ...], tuple[Shape, ...], tuple[Piece, ...]]:
    """The parts of a layout written piece by piece.

    Raises:
        PatternError: for text that `write` would not write.
    """
    head, brace, _ = text.partition("{")
    sides = head.split("->")
    body = text[len(head) :]
    if (
        len(sides) != 2
        or _PIECE.sub("", body).strip()
        or any(_SHAPE.sub("", s).strip(" ,") for s in sides)
    ):
        raise PatternError(
            f"layout: cannot read {text!r}; wanted shapes -> shapes {brace}out<-in: (n, in "
            "stride, out stride) ...}}"
        )
    ins, outs = (tuple(_ints(s) for s in _SHAPE.findall(side)) for side in sides)
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
