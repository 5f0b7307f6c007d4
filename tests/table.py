"""Table: what a layout makes of arrays, with every element looked up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlayout import Layout

__all__ = ["by_table"]


def by_table(layout: Layout, arrays: Sequence[np.ndarray], fill: float = 0) -> list[np.ndarray]:
    """The outputs by the brute-force table; a hole, -1, indexes the last element: `fill`."""
    flat = np.concatenate([x.ravel() for x in arrays])
    found = np.append(flat, np.array(fill).astype(flat.dtype))[layout.index()]
    ends = np.cumsum([int(np.prod(s)) for s in layout.out_shapes])[:-1]
    return [
        part.reshape(s) for part, s in zip(np.split(found, ends), layout.out_shapes, strict=True)
    ]
