"""Checks: the arguments of a tiled layer, refused before any tile is made or written."""

from __future__ import annotations

from typing import Any

import torch

from xlayout.algebra.shapes import type_name
from xlayout.errors import SizeError

__all__ = ["check_dense", "flag"]


def flag(value: Any, name: str) -> bool:
    """`value`, which must be True or False itself."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: {value!r}; wanted True or False")
    return value


def check_dense(layer: Any, name: str, shape: tuple[int, int], has_bias: bool) -> None:
    """Refuse a layer that is not dense, or that a tiled one of this (out, in) cannot hold.

    Raises:
        TypeError: for something without a weight.
        SizeError: for another size, or a bias that only one of the two has.
    """
    weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
    if not isinstance(weight, torch.Tensor):
        wanted = "a layer with a weight, such as torch.nn.Linear"
        raise TypeError(f"{name}: a {type_name(layer)}; wanted {wanted}")
    if weight.shape != shape:
        raise SizeError(f"{name}.weight: shape {tuple(weight.shape)}; wanted {shape}")
    if (bias is not None) is not has_bias:
        told = "no bias; this layer has one" if has_bias else "a bias; this layer has none"
        raise SizeError(f"{name}: it has {told}; make this one with bias={not has_bias}")
    if bias is not None and bias.shape != shape[:1]:
        raise SizeError(f"{name}.bias: shape {tuple(bias.shape)}; wanted {shape[:1]}")
