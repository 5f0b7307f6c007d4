"""Checks: arguments and tiles, refused before any tile is made, written or read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.parametrize import is_parametrized

from xlayout.algebra.shapes import a_type
from xlayout.errors import SizeError

__all__ = ["check_dense", "check_dtypes", "refuse_computed"]


def check_dense(layer: Any, name: str, shape: tuple[int, int], has_bias: bool) -> None:
    """Refuse a layer that is not dense, or does not fit a tiled layer of shape (out, in).

    Raises:
        TypeError: for something without a weight.
        SizeError: for another size, or a bias that only one of the two has.
    """
    weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
    if not isinstance(weight, torch.Tensor):
        wanted = "a layer with a weight, such as torch.nn.Linear"
        raise TypeError(f"{name}: {a_type(layer)}; wanted {wanted}")
    if weight.shape != shape:
        raise SizeError(f"{name}.weight: shape {tuple(weight.shape)}; wanted {shape}")
    if (bias is not None) is not has_bias:
        told = "no bias; this layer has one" if has_bias else "a bias; this layer has none"
        raise SizeError(f"{name}: it has {told}; make this one with bias={not has_bias}")
    if bias is not None and bias.shape != shape[:1]:
        raise SizeError(f"{name}.bias: shape {tuple(bias.shape)}; wanted {shape[:1]}")


def check_dtypes(held: Sequence[tuple[Any, str]]) -> None:
    """Refuse (parameter, name) of tiles that one dense layer could not hold as they are.

    Raises:
        TypeError: for parameters of several dtypes.
    """
    first, named = held[0]
    for parameter, name in held:
        if parameter.dtype != first.dtype:
            kinds = f"{named} is {first.dtype}, {name} is {parameter.dtype}"
            raise TypeError(f"{kinds}; wanted one dtype, as after .to(dtype)")


def refuse_computed(grid: Sequence[Sequence[Any]]) -> None:
    """Refuse a tile that computes its weight or bias from others: a copy to it would be lost.

    Raises:
        TypeError: for a tile with a parametrization, or with torch's older hooks for weight norm or
            pruning.
    """
    for o, row in enumerate(grid):
        for i, tile in enumerate(row):
            if is_parametrized(tile) or any(_is_hooked(tile, name) for name in ("weight", "bias")):
                raise TypeError(
                    f"linears[{o}][{i}]: {a_type(tile)} that computes its weight or bias from "
                    "other parameters (a parametrization, a norm of weights, or pruning), so that "
                    "a copy to it would be lost; copy first, or remove that"
                )


def _is_hooked(tile: Any, name: str) -> bool:
    """Whether a hook computes it from `weight_orig`, or from `weight_g` and `weight_v`."""
    held = [other for other, _ in tile.named_parameters(recurse=False)]
    return name not in held and any(other.startswith(f"{name}_") for other in held)
