"""Moves: a layout as strided copies between arrays with given strides."""

from __future__ import annotations

from functools import lru_cache

from xlayout.algebra import Layout
from xlayout.algebra.compose import between_each
from xlayout.algebra.shapes import bounds
from xlayout.algebra.strided import row_major, strided_copies
from xlayout.backend import Moves

__all__ = ["moves_of", "views_of"]


@lru_cache(1024)
def moves_of(
    layout: Layout,
    sources: tuple[tuple[int, ...], ...] | None = None,
    targets: tuple[tuple[int, ...], ...] | None = None,
) -> Moves:
    """(input, output, copy) for every piece between every pair of arrays.

    Args:
        layout: the layout.
        sources: the strides of the inputs, in elements; None if they are row-major.
        targets: the strides of the outputs, likewise.
    """
    sources = tuple(map(row_major, layout.in_shapes)) if sources is None else sources
    targets = tuple(map(row_major, layout.out_shapes)) if targets is None else targets
    return tuple(
        (j, k, copy)
        for j, k, pieces in between_each(
            layout.pieces, bounds(layout.in_shapes), bounds(layout.out_shapes)
        )
        for copy in strided_copies(
            pieces, layout.in_shapes[j], sources[j], layout.out_shapes[k], targets[k]
        )
    )


@lru_cache(1024)
def views_of(
    layout: Layout, strides: tuple[int, ...] | None = None
) -> list[tuple[int, tuple[int, ...]] | None]:
    """Each output as a strided view of the one input: see `Layout.as_view`."""
    return [part.as_view(strides) for part in layout.each()]
