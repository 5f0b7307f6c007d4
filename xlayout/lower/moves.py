"""Moves: a layout as strided copies between arrays whose memory is laid out in some way."""

from __future__ import annotations

from functools import lru_cache

from xlayout.algebra import Layout
from xlayout.algebra.shapes import ends
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
        layout: what goes where.
        sources: the strides of the inputs, in elements; None: they are row-major.
        targets: the strides of the outputs, likewise.
    """
    sources = tuple(map(row_major, layout.in_shapes)) if sources is None else sources
    targets = tuple(map(row_major, layout.out_shapes)) if targets is None else targets
    return tuple(
        (j, k, copy)
        for j, (inputs, in_strides) in enumerate(zip(ends(layout.in_shapes), sources, strict=True))
        for k, (outputs, out_strides) in enumerate(
            zip(ends(layout.out_shapes), targets, strict=True)
        )
        for copy in strided_copies(
            layout.between(inputs, outputs),
            layout.in_shapes[j],
            in_strides,
            layout.out_shapes[k],
            out_strides,
        )
    )


@lru_cache(1024)
def views_of(
    layout: Layout, strides: tuple[int, ...] | None = None
) -> list[tuple[int, tuple[int, ...]] | None]:
    """Each output as a strided view of the one input: see `Layout.as_view`."""
    return [part.as_view(strides) for part in layout.each()]
