"""Tiles: a matrix as a grid of blocks, and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeVar

from xlayout.algebra import Layout, Piece
from xlayout.algebra.partition import Rule, partition
from xlayout.algebra.shapes import Shape, as_shape
from xlayout.errors import AxisError, SizeError
from xlayout.ops.op import Op, everything

__all__ = ["from_tiles", "to_tiles"]

A = TypeVar("A")


def _grid(shape: Shape, rows: Sequence[int], columns: Sequence[int]) -> Layout:
    """One output per block, row by row of the grid, for blocks of these heights and widths."""
    height, width = shape[-2:]
    pieces, shapes, at = [], [], 0
    for top, h in zip(accumulate([0, *rows]), rows, strict=False):
        for left, w in zip(accumulate([0, *columns]), columns, strict=False):
            pieces.append(Piece(top * width + left, at, ((h, width, w), (w, 1, 1))))
            shapes.append((h, w))
            at += h * w
    core = Layout(((height, width),), tuple(shapes), tuple(p for p in pieces if p.size))
    return core.lift(shape[:-2], ())


class ToTiles(Op[Any]):
    """The op `to_tiles`: one array in, rows of blocks out."""

    def layout(
        self, shape: Sequence[int], /, *, grid: tuple[int, int], rule: Rule = "balanced"
    ) -> Layout:
        """The op on a shape; outputs are the blocks, row by row."""
        return self._layout(as_shape(shape), grid=grid, rule=rule)

    def __call__(
        self, x: A, /, *, grid: tuple[int, int], rule: Rule = "balanced", copy: bool | None = True
    ) -> list[list[A]]:
        made = self._call((x,), {"grid": tuple(grid), "rule": rule, "copy": copy})
        blocks = made if isinstance(made, tuple) else (made,)
        return [list(blocks[k : k + grid[1]]) for k in range(0, len(blocks), grid[1])]


class FromTiles(Op[Any]):
    """The op `from_tiles`: rows of blocks in, one array out."""

    def layout(self, shapes: Sequence[Sequence[Sequence[int]]], /) -> Layout:
        """The op on rows of shapes."""
        rows = [[as_shape(s) for s in row] for row in shapes]
        return self._layout(tuple(s for row in rows for s in row), columns=_columns(rows))

    def _args(self, shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        return (shapes,)

    def __call__(
        self, tiles: Sequence[Sequence[A]], /, *, out: A | None = None, copy: bool | None = True
    ) -> A:
        options = {"columns": _columns(tiles), "out": out, "copy": copy}
        return self._call([tile for row in tiles for tile in row], options)  # type: ignore[no-any-return]


def _columns(tiles: Sequence[Sequence[Any]]) -> int:
    counts = sorted({len(row) for row in tiles})
    if len(counts) != 1 or not counts[0]:
        raise SizeError(
            f"tiles: rows of {counts} blocks; every row needs the same number, at least one"
        )
    return counts[0]


def _to_tiles(shape: Shape, /, *, grid: tuple[int, int], rule: Rule = "balanced") -> Layout:
    """The blocks of a matrix, as rows of a nested list.

    The last two axes are cut, each by `partition` under `rule`; other axes stay whole in every
    block. "balanced" gives the tiles of DeepSpeed's TiledLinear.

    Args:
        shape: an array of at least two axes.
        grid: (rows, columns) of the grid; a block may be empty.
        rule: how uneven sizes are shared out; see `partition`.
        **_run: `copy=`.

    Returns:
        `grid[0]` lists of `grid[1]` arrays.

    Raises:
        AxisError: for fewer than two axes.
        SizeError: for a grid below 1, or an uneven cut under rule "even".

    >>> import numpy as np
    >>> [[tile.shape for tile in row] for row in to_tiles(np.zeros((3, 5)), grid=(2, 2))]
    [[(2, 3), (2, 2)], [(1, 3), (1, 2)]]
    """
    if len(shape) < 2:
        raise AxisError(f"x: {len(shape)} axes, shape {shape}; tiles need at least 2")
    if len(grid) != 2:
        raise SizeError(f"grid: {grid}; wanted (rows, columns)")
    rows, columns = (partition(n, g, rule=rule) for n, g in zip(shape[-2:], grid, strict=True))
    return _grid(shape, rows, columns)


def _from_tiles(shapes: tuple[Shape, ...], /, *, columns: int) -> Layout:
    """One matrix from rows of blocks: the exact inverse of `to_tiles`, whatever the rule was.

    Args:
        shapes: a nested list of arrays; blocks of a row are equally high, of a column equally wide.
        columns: blocks per row (the array function counts them).
        **_run: `out=`, `copy=`.

    Raises:
        SizeError: for ragged rows, or blocks that do not fit together.

    >>> import numpy as np
    >>> x = np.arange(15).reshape(3, 5)
    >>> (from_tiles(to_tiles(x, grid=(2, 2))) == x).all()
    np.True_
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
    return _grid((*batch, sum(heights), sum(widths)), heights, widths).inverse()


to_tiles = ToTiles(_to_tiles, everything, None)
from_tiles = FromTiles(_from_tiles, everything, None)
