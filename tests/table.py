"""Table: layouts and loops element by element, which is what they are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from xlayout import Layout, Piece

__all__ = ["UNCUT", "by_table", "pairs"]

UNCUT = Layout(((42,),), ((42,),), tuple(Piece(pow(3, k, 43) - 1, k) for k in range(42))).inverse()
"""A bijection whose boxes no straight cut tells apart: its program looks up a table."""


def pairs(first: int, other: int, loops: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """All positions of (n, stride, other stride) loops on both sides: what a piece means."""
    found = [(first, other)]
    for n, x, z in loops:
        found = [(a + k * x, b + k * z) for a, b in found for k in range(n)]
    return found


def by_table(layout: Layout, arrays: Sequence[np.ndarray], fill: float = 0) -> list[np.ndarray]:
    """The outputs by the brute-force table; a hole, -1, indexes the last element: `fill`."""
    flat = np.concatenate([x.ravel() for x in arrays])
    found = np.append(flat, np.array(fill).astype(flat.dtype))[layout.index()]
    ends = np.cumsum([int(np.prod(s)) for s in layout.out_shapes])[:-1]
    return [
        part.reshape(s) for part, s in zip(np.split(found, ends), layout.out_shapes, strict=True)
    ]
