"""Tiled linear: a linear layer on the tiles of its weight, without the whole weight."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

from xlayout.algebra.shapes import Shape
from xlayout.backend import Backend
from xlayout.errors import AxisError, SizeError
from xlayout.lower.calls import common_backend, kind_of
from xlayout.ops.grid import fitted, flat
from xlayout.registry import backend_of

__all__ = ["tiled_linear"]

A = TypeVar("A")


def tiled_linear(x: A | Sequence[A], tiles: Sequence[Sequence[A]], bias: A | None = None) -> A:
    """`x @ from_tiles(tiles).T + bias`, one tile at a time.

    The dense weight never exists: besides its arguments it needs the result twice, in parts and
    joined. Products of a row are added from left to right, so floats may be rounded differently
    than in one dense product. It consists of the framework's own operators: gradients, transforms,
    compilers and autocast treat it like any model code, and dtypes promote as under `@`.

    Args:
        x: an array of shape (..., in), or a sequence of its parts along the last axis, one for each
            column of tiles, as from a layer that does not join its outputs.
        tiles: nested lists as `to_tiles` makes them of a weight (out, in); a tile may be empty.
        bias: an array of shape (out,).

    Returns:
        An array of shape (..., out).

    Raises:
        TypeError: for a value that is not an array, or arrays of several frameworks or devices.
        AxisError: for tiles that do not have two axes, or an `x` that has none.
        SizeError: for ragged rows, tiles that do not fit together, or an `x` or a `bias` that does
            not fit the tiles.

    >>> import numpy as np
    >>> from xlayout import to_tiles
    >>> weight, x = np.arange(15).reshape(3, 5), np.arange(5)
    >>> tiled_linear(x, to_tiles(weight, grid=(2, 2)), np.array([100, 200, 300]))
    array([130, 280, 430])
    """
    blocks, columns = flat(tiles)
    backend = common_backend(blocks, "tiles")
    shapes = tuple(_shape(tile) for tile in blocks)
    _, heights, widths = fitted(shapes, columns)
    for number, shape in enumerate(shapes):
        if len(shape) != 2:
            where = f"tiles[{number // columns}][{number % columns}]"
            raise AxisError(f"{where}: shape {shape}; wanted 2 axes, (out, in)")
    if bias is not None:
        _check_same(backend, blocks[0], bias, "bias")
        if _shape(bias) != (sum(heights),):
            raise SizeError(f"bias: shape {_shape(bias)}; the tiles make {(sum(heights),)}")
    parts = _parts(backend, blocks[0], x, widths)
    made = []
    for row, (top, bottom) in enumerate(pairwise(accumulate(heights, initial=0))):
        y = _product(parts, blocks[row * columns : (row + 1) * columns])
        if bias is not None:
            part = bias if len(heights) == 1 else backend.slice(bias, 0, top, bottom, 1)
            part = _cast_bias(part, y, blocks[0])
            # With as many axes as the product: jax_numpy_rank_promotion may forbid adding axes.
            y = y + backend.reshape(part, (1,) * (y.ndim - 1) + (bottom - top,))
        made.append(y)
    joined: A = made[0] if len(made) == 1 else backend.concatenate(made, made[0].ndim - 1)
    return joined


def _shape(x: Any) -> Shape:
    return tuple(x.shape)


def _check_same(backend: Backend, tile: Any, x: Any, name: str) -> None:
    """Refuse an array of another framework or device than the tiles'."""
    other = backend_of(x, name)
    kind = kind_of(other, x, name)
    if other is not backend:
        raise TypeError(
            f"{name} is {other.name}, the tiles are {backend.name}; one framework per call"
        )
    if kind[1] != backend.kind(tile)[1]:
        there = backend.kind(tile)[1]
        raise TypeError(f"{name} is on {kind[1]}, the tiles are on {there}; one device per call")


def _parts(backend: Backend, tile: Any, x: Any, widths: list[int]) -> list[Any]:
    """What each column of tiles is multiplied by."""
    if isinstance(x, (list, tuple)):
        if len(x) != len(widths):
            raise SizeError(f"x: {len(x)} parts; the tiles have {len(widths)} columns")
        given = [(f"x[{k}]", *pair) for k, pair in enumerate(zip(x, widths, strict=True))]
    else:
        given = [("x", x, sum(widths))]
    for name, part, width in given:
        _check_same(backend, tile, part, name)
        shape = _shape(part)
        if not shape:
            raise AxisError(f"{name}: no axes; wanted (..., {width})")
        if shape[-1] != width:
            of = f"the tiles take {width}" if name == "x" else f"its column of tiles takes {width}"
            raise SizeError(f"{name}: shape {shape}, whose last axis has {shape[-1]}; {of}")
        if shape[:-1] != _shape(given[0][1])[:-1]:
            raise SizeError(
                f"{name}: shape {shape}; x[0] has {_shape(given[0][1])}: all but the last axis "
                "must agree"
            )
    if len(given) == len(widths):
        return [part for _, part, _ in given]
    cuts = pairwise(accumulate(widths, initial=0))
    return [backend.slice(x, x.ndim - 1, left, right, 1) for left, right in cuts]


def _product(parts: Sequence[Any], row: Sequence[Any]) -> Any:
    y = parts[0] @ row[0].mT
    for part, tile in zip(parts[1:], row[1:], strict=True):
        y = y + part @ tile.mT
    return y


def _cast_bias(bias: Any, y: Any, tile: Any) -> Any:
    """A bias in the weight's dtype, cast if autocast has narrowed the product."""
    if bias.dtype == tile.dtype != y.dtype:
        return bias.astype(y.dtype) if hasattr(bias, "astype") else bias.to(y.dtype)
    return bias
