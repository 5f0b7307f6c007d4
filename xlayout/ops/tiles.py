"""Tiles: a matrix as a grid of blocks, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol, TypeVar, Unpack, cast

from xlayout.algebra import Layout, Piece
from xlayout.algebra.partition import Rule, partition
from xlayout.algebra.shapes import Shape, as_shape, integer
from xlayout.errors import AxisError, SizeError
from xlayout.ops.dispatch import nary, unary
from xlayout.ops.engine import Engine
from xlayout.ops.grid import fitted, flat
from xlayout.ops.op import array_function, on_shapes, refuse_unknown_options, strict
from xlayout.ops.options import RUN, Options

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
    core = Layout(((height, width),), tuple(shapes), tuple(pieces))
    return core.lift(shape[:-2], ())


def _matrix(ndim: int, _options: dict[str, Any]) -> frozenset[int]:
    """The last two axes are touched."""
    return frozenset(range(max(ndim - 2, 0), ndim))


def _pair(grid: Sequence[int]) -> tuple[int, int]:
    if not isinstance(grid, (tuple, list)):
        raise TypeError(f"grid: {grid!r}; wanted (rows, columns)")
    if len(grid) != 2:
        raise SizeError(f"grid: {grid}; wanted (rows, columns)")
    return integer(grid[0], "grid", 1), integer(grid[1], "grid", 1)


def _as_rows(outputs: int, options: dict[str, Any]) -> Callable[[Any], list[list[Any]]]:
    if outputs == 1:
        return lambda block: [[block]]
    columns = int(options["grid"][1])
    rows = [slice(k, k + columns) for k in range(0, outputs, columns)]
    return lambda blocks: [[*blocks[row]] for row in rows]


class ToTiles(Protocol):
    """One array in, rows of blocks out."""

    __name__: str

    def __call__(
        self,
        x: A,
        /,
        *,
        grid: tuple[int, int],
        rule: Rule = "balanced",
        **_options: Unpack[Options],
    ) -> list[list[A]]:
        """The op on an array."""

    def layout(
        self, shape: Sequence[int], /, *, grid: tuple[int, int], rule: Rule = "balanced"
    ) -> Layout:
        """The op on a shape; its outputs are the blocks, row by row."""


class FromTiles(Protocol):
    """Rows of blocks in, one array out."""

    __name__: str

    def __call__(
        self,
        tiles: Sequence[Sequence[A]],
        /,
        **_options: Unpack[Options],
    ) -> A:
        """The op on rows of arrays."""

    def layout(self, shapes: Sequence[Sequence[Sequence[int]]], /) -> Layout:
        """The op on rows of shapes."""


def _on_matrix(function: Callable[..., Layout]) -> ToTiles:
    call = unary(Engine(strict(function), _matrix, nested=_as_rows))
    return cast("ToTiles", array_function(call, function, on_shapes(function), ToTiles))


def _on_rows(function: Callable[..., Layout]) -> FromTiles:
    run = nary(Engine(function, _matrix, packed=True, names="tiles"))

    def call(tiles: Sequence[Sequence[Any]], /, **options: Any) -> Any:
        refuse_unknown_options("from_tiles", options, RUN)
        blocks, columns = flat(tiles)
        options["columns"] = columns
        return run(blocks, options)

    def layout(shapes: Sequence[Sequence[Sequence[int]]], /) -> Layout:
        blocks, columns = flat(shapes)
        return function(tuple(map(as_shape, blocks)), columns=columns)

    return cast("FromTiles", array_function(call, function, layout, FromTiles))


@_on_matrix
def to_tiles(shape: Shape, /, *, grid: tuple[int, int], rule: Rule = "balanced") -> Layout:
    """The blocks of a matrix, as rows of a nested list.

    The last two axes are cut, each by `partition` under `rule`; other axes stay whole in every
    block. "balanced" gives the tiles of DeepSpeed's TiledLinear.

    Args:
        shape: an array of at least two axes.
        grid: (rows, columns) of the grid; a block may be empty.
        rule: how uneven sizes are divided; see `partition`.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Returns:
        `grid[0]` lists of `grid[1]` arrays.

    Raises:
        AxisError: for fewer than two axes.
        SizeError: for a grid below 1, or an uneven cut under rule "even".
        LayoutError: for an unknown rule.

    >>> import numpy as np
    >>> [[tile.shape for tile in row] for row in to_tiles(np.zeros((3, 5)), grid=(2, 2))]
    [[(2, 3), (2, 2)], [(1, 3), (1, 2)]]
    """
    if len(shape) < 2:
        raise AxisError(f"x: {len(shape)} axes, shape {shape}; tiles need at least 2")
    across = zip(shape[-2:], _pair(grid), strict=True)
    rows, columns = (partition(n, g, rule=rule) for n, g in across)
    return _grid(shape, rows, columns)


@_on_rows
def from_tiles(  # noqa: D417 -- callers do not pass `columns`: the array function counts them
    shapes: tuple[Shape, ...], /, *, columns: int
) -> Layout:
    """One matrix from rows of blocks: the exact inverse of `to_tiles`, whatever the rule was.

    Args:
        shapes: a nested list of arrays; blocks of a row are equally high, of a column equally wide.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        TypeError: for a value that is not a list of rows.
        AxisError: for blocks of fewer than two axes.
        SizeError: for ragged rows, or blocks that do not fit together.

    >>> import numpy as np
    >>> x = np.arange(15).reshape(3, 5)
    >>> (from_tiles(to_tiles(x, grid=(2, 2))) == x).all()
    np.True_
    """
    batch, heights, widths = fitted(shapes, columns)
    return _grid((*batch, sum(heights), sum(widths)), heights, widths).inverse()
