"""Grid: checks of nested lists of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from xlayout.algebra.shapes import Shape, a_type, integer
from xlayout.errors import AxisError, SizeError

__all__ = ["fitted", "flat", "splits"]

A = TypeVar("A")


def flat(tiles: Sequence[Sequence[A]]) -> tuple[tuple[A, ...], int]:
    """The blocks row by row, and the number of columns.

    Raises:
        TypeError: for a value that is not a list of rows.
        SizeError: for ragged rows, or no blocks at all.

    >>> flat([["a", "b"], ["c", "d"]])
    (('a', 'b', 'c', 'd'), 2)
    """
    blocks: list[A] = []
    for row in tiles if isinstance(tiles, (list, tuple)) else ():
        if not isinstance(row, (list, tuple)) or len(row) != len(tiles[0]):
            break
        blocks += row
    else:
        if blocks:
            return tuple(blocks), len(tiles[0])
    raise _refusal(tiles)


def _refusal(tiles: Any) -> Exception:
    for part in (tiles, *tiles) if isinstance(tiles, (list, tuple)) else (tiles,):
        if not isinstance(part, (list, tuple)):
            return TypeError(f"tiles: {a_type(part)}; wanted a list of rows, each a list of blocks")
    counts = sorted({*map(len, tiles)})
    return SizeError(
        f"tiles: rows of {counts} blocks; every row needs the same number, at least one"
    )


def fitted(shapes: Sequence[Shape], columns: int) -> tuple[Shape, list[int], list[int]]:
    """The leading axes that all blocks share, the height of each row, the width of each column.

    Args:
        shapes: the shapes of the blocks, row by row.
        columns: number of blocks in a row.

    Raises:
        AxisError: for blocks of fewer than two axes.
        SizeError: for blocks that do not fit together.

    >>> fitted([(3, 2), (3, 1), (4, 2), (4, 1)], 2)
    ((), [3, 4], [2, 1])
    """
    grid = [shapes[k : k + columns] for k in range(0, len(shapes), columns)]
    batch = shapes[0][:-2]
    if any(len(s) < 2 for s in shapes):
        raise AxisError(f"tiles: shapes {shapes}; every block needs at least 2 axes")
    heights, widths = [row[0][-2] for row in grid], [s[-1] for s in grid[0]]
    for i, row in enumerate(grid):
        for j, s in enumerate(row):
            if s != (*batch, heights[i], widths[j]):
                raise SizeError(
                    f"tiles[{i}][{j}]: shape {s}; its row and column want "
                    f"{(*batch, heights[i], widths[j])}"
                )
    return batch, heights, widths


def splits(value: Any, name: str, features: int) -> int:
    """A number of tiles along an axis of a layer, at most one for each feature.

    Raises:
        TypeError: for something that is not an int.
        SizeError: for one below 1, or above the number of features.

    >>> splits(2, "in_splits", 10)
    2
    """
    number = integer(value, name, 1)
    if number > features:
        of = name.replace("splits", "features")
        raise SizeError(f"{name}: {number}; wanted 1 to {of} = {features}")
    return number
