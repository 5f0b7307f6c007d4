"""Input: the input of each column of tiles, checked before the first tile runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from xlayout.algebra import partition
from xlayout.algebra.shapes import a_type
from xlayout.errors import AxisError, SizeError

__all__ = ["parts_of", "whole_of"]


def parts_of(given: Any, row: Sequence[Any]) -> tuple[Any, ...]:
    """The parts of an input that is split already, one for each tile of a row.

    Raises:
        TypeError: for a part that is not a tensor.
        AxisError: for a part without axes.
        SizeError: for another number of parts than tiles, or a part that a plain tile cannot take.
    """
    parts = tuple(given)
    if len(parts) != len(row):
        raise SizeError(f"input_: {len(parts)} parts; wanted in_splits = {len(row)}")
    for i, (part, tile) in enumerate(zip(parts, row, strict=True)):
        width, takes = _width(part, f"input_[{i}]"), _input_width(tile)
        if takes is not None and width != takes:
            raise SizeError(f"input_[{i}]: last axis {width}; linears[0][{i}] takes {takes}")
    return parts


def whole_of(
    x: Any,
    row: Sequence[Any],
    widths: Sequence[int],
    split: Callable[[Any, Sequence[int]], Sequence[Any]],
) -> Sequence[Any]:
    """A whole input, cut by `split` for the tiles of a row.

    One that is narrower than all `widths` together is a shard, and is cut evenly too; a plain tile
    is not sharded and does not take it.

    Raises:
        TypeError: for something that is not a tensor.
        AxisError: for a scalar.
        SizeError: for an input that plain tiles cannot take.
    """
    width = _width(x, "input_")
    if width != sum(widths):
        for tile, part in zip(row, partition(width, len(row)), strict=True):
            if _input_width(tile) not in (None, part):
                raise SizeError(f"input_: last axis {width}; wanted in_features = {sum(widths)}")
        widths = partition(width, len(row))
    return (x,) if len(row) == 1 else split(x, widths)


def _width(x: Any, name: str) -> int:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: {a_type(x)}; wanted a torch.Tensor")
    if not x.ndim:
        raise AxisError(f"{name}: no axes; wanted (..., features)")
    return x.shape[-1]


def _input_width(tile: Any) -> int | None:
    """The input width of a plain layer; None if it is wrapped, sharded or of another class."""
    plain = type(tile) is nn.Linear and not tile._forward_pre_hooks
    whole = plain and type(tile.weight) is nn.Parameter and tile.weight.ndim == 2
    return tile.weight.shape[1] if whole else None
