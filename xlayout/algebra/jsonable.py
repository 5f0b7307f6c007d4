"""JSON: a layout as stable text, and back with every value checked."""

from __future__ import annotations

import json
from typing import Any

from xlayout.algebra.piece import Piece
from xlayout.algebra.shapes import Shape, integer
from xlayout.errors import LayoutError

__all__ = ["dump", "load"]

_FORMAT = "xlayout.layout/1"


def dump(
    in_shapes: tuple[Shape, ...], out_shapes: tuple[Shape, ...], pieces: tuple[Piece, ...]
) -> str:
    """One line of JSON, the same for the same parts."""
    return json.dumps(
        {
            "format": _FORMAT,
            "in_shapes": in_shapes,
            "out_shapes": out_shapes,
            "pieces": [[p.in_offset, p.out_offset, p.loops] for p in pieces],
        },
        separators=(",", ":"),
    )


def load(text: str) -> tuple[tuple[Shape, ...], tuple[Shape, ...], tuple[Piece, ...]]:
    """The parts of a layout from what `dump` wrote.

    Raises:
        LayoutError: for text that is not a layout of this format.
    """
    try:
        data = json.loads(text)
        if data["format"] != _FORMAT:
            raise LayoutError(
                f"from_json: format {data['format']!r}; this version reads {_FORMAT!r}"
            )
        return (
            tuple(_ints(s, "in_shapes") for s in data["in_shapes"]),
            tuple(_ints(s, "out_shapes") for s in data["out_shapes"]),
            tuple(_piece(p) for p in data["pieces"]),
        )
    except LayoutError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise LayoutError(f"from_json: not a layout: {error}") from None


def _piece(data: Any) -> Piece:
    in_offset, out_offset, loops = data
    return Piece(
        integer(in_offset, "in_offset"),
        integer(out_offset, "out_offset"),
        tuple((n, x, z) for n, x, z in (_ints(loop, "loops") for loop in loops)),
    )


def _ints(values: Any, name: str) -> tuple[int, ...]:
    return tuple(integer(v, name) for v in values)
