"""Moving the data: tiles moved concurrently, in no more memory than was planned."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from xlayout.errors import PortError
from xlayout.port.change import roomy_dtype
from xlayout.port.formats import numpy_dtype
from xlayout.port.lanes import side_by_side
from xlayout.port.losses import Loss
from xlayout.port.regions import read_tile, scatter, written

if TYPE_CHECKING:
    from xlayout.port.formats import Sink, Source
    from xlayout.port.formats.base import Array
    from xlayout.port.move import Buffers, Move, Tile
    from xlayout.port.value import PortPlan

__all__ = ["stream"]


def stream(
    source: Source, sink: Sink, plan: PortPlan, /, progress: Callable[[int], None] | None = None
) -> int:
    """Carry out a plan's moves, calling `progress` with the bytes of each tile that is done.

    Returns:
        The bytes that an interrupted run had written, and that were found intact.

    Raises:
        PortError: An element would not come back although the plan says that all do, or the disk
            is full.
    """
    kept = 0

    def ended(moved: tuple[int, int]) -> None:
        nonlocal kept
        kept += moved[1]
        if progress is not None:
            progress(moved[0])

    jobs = (
        partial(_carry, source, sink, move, tile) for move in plan.moves for tile in move.tiles()
    )
    side_by_side(jobs, ended, lanes=plan.lanes, nbytes=plan.buffer_bytes // plan.lanes)
    return kept


def _carry(source: Source, sink: Sink, move: Move, tile: Tile, buffers: Buffers) -> tuple[int, int]:
    """Move one tile; return its bytes, and how many of them had been written before."""
    name, dtype = move.target.tensor, numpy_dtype(move.change.target)
    y = buffers.carve(0, dtype, (tile.layout.size,))
    there = written(sink, name, tile.write, y)
    sizes = (math.prod(cut.stop - cut.start for cut in region) for region in there)
    kept = sum(sizes) * y.itemsize
    if len(there) < len(tile.write):
        x = read_tile(source, move, tile, buffers)
        y = _changed(move, x, buffers).reshape(-1)
        scatter(sink, name, tile.write, y, but=there)
    return y.nbytes, kept


def _changed(move: Move, x: Array, buffers: Buffers) -> Array:
    """Return a tile's values in the target's dtype, each converted back if the plan says so."""
    if move.change.is_nothing:
        return x
    start = sum(move.buffers(move.lead)[:2])
    y = move.change.apply(x, buffers.carve(start, numpy_dtype(move.change.target), x.shape))
    if move.checked and (lost := move.change.losses(x, y)):
        loss = Loss(move.source.tensor, move.change, move.power, lost, x.size)
        wide = roomy_dtype(move.change.source, move.change.factor)
        raise PortError(
            f"{loss}, which its sample did not show; dtype={wide!r} holds them, exact=False "
            "(--lossy) rounds them"
        )
    return y
