"""Cost: the bytes that one run of a layout reads, writes and holds, known before it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xlayout.algebra.assemble import build
from xlayout.algebra.compose import between_each
from xlayout.algebra.piece import Piece
from xlayout.algebra.shapes import bounds, integer

if TYPE_CHECKING:
    from xlayout.algebra.layout import Layout

__all__ = ["Cost", "estimate"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a copy from row-major inputs to a fresh output; a view moves nothing.

    Attributes:
        bytes_read: bytes read from the inputs; an element that is read twice counts twice.
        bytes_written: bytes written to the outputs, fill included.
        run_in: shortest contiguous run read, in bytes; no run goes on in another array.
        run_out: shortest contiguous run written, in bytes.
        run: shortest run that is contiguous on both sides, in bytes: the length of a memcpy.
        pieces: number of affine boxes.
        is_view: whether every output can be a view of the one input, so that with `copy=None` no
            byte moves; the other figures are those of a copy.
        peak_bytes: inputs plus outputs. Only a "gather" by a table needs more: the concatenated
            inputs and 8 bytes for each output element.
        lowering: "view", "permute" (one reshape-permute-reshape), "concatenate" (slices put
            together) or "gather" (a table when traced or differentiated; else strided copies).

    >>> from xlayout import Layout
    >>> cost = Layout.parse("a b -> b a", (3, 4)).cost(itemsize=2)
    >>> cost.bytes_read, cost.run_in, cost.run_out, cost.run, cost.lowering
    (24, 8, 6, 2, 'view')
    """

    bytes_read: int
    bytes_written: int
    run_in: int
    run_out: int
    run: int
    pieces: int
    is_view: bool
    peak_bytes: int
    lowering: str

    def __str__(self) -> str:
        count = f"{self.pieces} piece{'' if self.pieces == 1 else 's'}"
        article = "a " if self.lowering in ("permute", "gather") else ""
        view = "a view: nothing moves with copy=None; a copy takes " if self.is_view else ""
        how = "" if self.is_view else f", {article}{self.lowering}"
        return (
            f"{view}{self.bytes_read} B read, {self.bytes_written} B written, "
            f"contiguous {self.run_in} B in, {self.run_out} B out; "
            f"{count}{how}; peak {self.peak_bytes} B"
        )


def estimate(layout: Layout, itemsize: int) -> Cost:
    """The cost of a layout for elements of `itemsize` bytes."""
    itemsize = integer(itemsize, "itemsize", 1)
    views = [part.as_view() for part in layout.each()]
    is_view = len(layout.in_shapes) == 1 and None not in views
    ins, outs = bounds(layout.in_shapes), bounds(layout.out_shapes)
    moved = [p for _, _, here in between_each(layout.pieces, ins, outs) for p in here]
    return Cost(
        bytes_read=layout.size * itemsize,
        bytes_written=layout.out_size * itemsize,
        run_in=_run(moved, itemsize, 1),
        run_out=_run(moved, itemsize, 2),
        run=_run(moved, itemsize, 1, 2),
        pieces=len(layout.pieces),
        is_view=is_view,
        peak_bytes=(layout.in_size + layout.out_size) * itemsize,
        lowering="view" if is_view else _lowering(layout),
    )


def _run(pieces: Sequence[Piece], itemsize: int, *sides: int) -> int:
    """Bytes of the shortest stretch, over all pieces, whose stride is 1 on every given side."""
    runs = (
        math.prod(loop[0] for loop in p.loops if all(loop[s] == 1 for s in sides)) for p in pieces
    )
    return itemsize * min(runs, default=0)


def _lowering(layout: Layout) -> str:
    program = build(*layout._parts)
    if program.gathers:
        return "gather"
    verbs = {verb for verb, _, _ in program.steps}
    return "permute" if verbs <= {"reshape", "permute"} else "concatenate"
