"""JSON: a layout as stable text, and back, with every value checked."""

from __future__ import annotations

import json
from typing import Any

from xlayout.algebra.piece import Parts, Piece
from xlayout.algebra.shapes import Shape, integers
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


def load(text: str) -> Parts:
    """The parts of a layout from what `dump` wrote.

    Raises:
        TypeError: for a value that is not text.
        LayoutError: for text that is not a layout of this format.
    """
    if not isinstance(text, (str, bytes, bytearray)):
        raise TypeError(f"from_json: {text!r:.80}; wanted the text that to_json() makes")
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise TypeError(f"{data!r}; wanted an object")
        if data["format"] != _FORMAT:
            raise LayoutError(
                f"from_json: format {data['format']!r}; this version reads {_FORMAT!r}"
            )
        return (
            _shapes(data["in_shapes"], "in_shapes"),
            _shapes(data["out_shapes"], "out_shapes"),
            tuple(_piece(p) for p in _list(data["pieces"], "pieces")),
        )
    except LayoutError:
        raise
    except KeyError as error:
        raise LayoutError(f"from_json: not a layout: no {error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise LayoutError(f"from_json: not a layout: {error}") from None


def _piece(data: Any) -> Piece:
    if len(_list(data, "pieces")) != 3:
        raise TypeError(f"pieces: {data!r}; wanted [in offset, out offset, loops]")
    in_offset, out_offset, loops = data
    return Piece(in_offset, out_offset, tuple(_list(loops, "loops")))


def _shapes(data: Any, name: str) -> tuple[Shape, ...]:
    return tuple(integers(_list(shape, name), name) for shape in _list(data, name))


def _list(data: Any, name: str) -> list[Any]:
    if not isinstance(data, list):
        raise TypeError(f"{name}: {data!r}; wanted a list")
    return data
