"""A layout drawn as an SVG picture, in which every element keeps the colour it has in the input.

Elements that always move together are one cell. A picture has at most some hundred cells; for a
larger layout it shows the first ones and says how many are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from colorsys import hls_to_rgb
from html import escape
from itertools import product

from xlayout.algebra import Layout, Piece
from xlayout.algebra.compose import restrict
from xlayout.algebra.shapes import Shape, bounds

__all__ = ["draw"]

_MOST = 512
_CELL, _GAP, _MARGIN = 26, 18, 12


def draw(layout: Layout) -> str:
    """The picture as SVG text.

    >>> svg = draw(Layout.permute((2, 3), (1, 0)))
    >>> svg.startswith("<svg"), svg.count("<rect")
    (True, 12)
    """
    unit = _unit(layout)
    source = _cells(layout.pieces, unit, layout.out_size // unit)
    inputs = {k: k for k in range(min(layout.in_size // unit, _MOST))}
    hues = max(1, layout.in_size // unit)
    body: list[str] = []
    y, width = _MARGIN, 0
    for title, shapes, cells in (
        ("in", layout.in_shapes, inputs),
        ("out", layout.out_shapes, source),
    ):
        y, wide = _side(body, title, shapes, cells, unit, hues, y)
        width = max(width, wide)
    note = f"{layout}" + (f" (one cell = {unit} elements)" if unit > 1 else "")
    body.append(_text(_MARGIN, y + 12, note, "start"))
    width, height = max(width, 7 * len(note)) + 2 * _MARGIN, y + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="monospace" font-size="10">'
        f"<title>{escape(note)}</title>{''.join(body)}</svg>"
    )


def _unit(layout: Layout) -> int:
    """The longest run that every piece moves whole and that divides the rows of every array."""
    unit = 0
    for piece in layout.pieces:
        inner = [n for n, x, z in piece.loops if x == z == 1]
        unit = math.gcd(unit, inner[0] if inner else 1, piece.in_offset, piece.out_offset)
        for _, x, z in (loop for loop in piece.loops if loop[1:] != (1, 1)):
            unit = math.gcd(unit, x, z)
    for shape in (*layout.in_shapes, *layout.out_shapes):
        unit = math.gcd(unit, shape[-1] if shape else 1)
    return max(1, unit)


def _cells(pieces: Iterable[Piece], unit: int, count: int) -> dict[int, int | None]:
    """Output cell -> input cell for the first cells, with None for holes."""
    shown = min(count, _MOST)
    found: dict[int, int | None] = dict.fromkeys(range(shown))
    for piece in restrict(pieces, outputs=(0, shown * unit)) if shown else ():
        loops = [
            (n // unit, unit, unit) if (x, z) == (1, 1) else (n, x, z) for n, x, z in piece.loops
        ]
        for steps in product(*(range(n) for n, _, _ in loops)):
            i = piece.in_offset + sum(k * x for k, (_, x, _) in zip(steps, loops, strict=True))
            o = piece.out_offset + sum(k * z for k, (_, _, z) in zip(steps, loops, strict=True))
            found[o // unit] = i // unit
    return found


def _side(
    body: list[str],
    title: str,
    shapes: Sequence[Shape],
    cells: dict[int, int | None] | dict[int, int],
    unit: int,
    hues: int,
    y: int,
) -> tuple[int, int]:
    """Draw one side's arrays next to each other; return the y below them, and their width."""
    x, low = _MARGIN, y
    for number, (shape, (first, last)) in enumerate(zip(shapes, bounds(shapes), strict=True)):
        columns = max(1, (shape[-1] if shape else 1) // unit)
        count = (last - first) // unit
        name = title if len(shapes) == 1 else f"{title} {number}"
        body.append(_text(x, y + 10, f"{name} {shape}", "start"))
        shown = min(count, max(0, len(cells) - first // unit))  # the cells are the first ones
        for k in range(shown):
            row, column = divmod(k, columns)
            source = cells[first // unit + k]
            body += _cell(x + column * _CELL, y + 16 + row * _CELL, k, source, hues)
        rows = -(-shown // columns)
        bottom = y + 16 + rows * _CELL
        if shown < count:
            body.append(_text(x, bottom + 10, f"... {count - shown} more cells", "start"))
            bottom += 14
        low = max(low, bottom)
        x += max(min(columns, shown) * _CELL, 8 * len(f"{name} {shape}")) + _GAP
    return low + _GAP, x - _GAP


def _cell(x: int, y: int, position: int, source: int | None, hues: int) -> Iterator[str]:
    fill = "none" if source is None else _colour(source / hues)
    tip = "hole" if source is None else f"input {source}"
    yield (
        f'<rect x="{x}" y="{y}" width="{_CELL - 2}" height="{_CELL - 2}" fill="{fill}" '
        f'stroke="#666"><title>{position}: {tip}</title></rect>'
    )
    if source is not None:
        yield _text(x + _CELL // 2 - 1, y + _CELL // 2 + 3, str(source), "middle")


def _colour(turn: float) -> str:
    """A light colour, from red for the first input to violet for the last."""
    channels = hls_to_rgb(0.83 * turn, 0.78, 0.65)
    return "#" + "".join(f"{round(255 * c):02x}" for c in channels)


def _text(x: int, y: int, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#222">{escape(text)}</text>'
