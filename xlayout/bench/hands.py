"""Hands: the few kinds of op that every framework has words of its own for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from xlayout.algebra.shapes import Shape

__all__ = ["Cut", "Hand", "Join", "Pad", "Permute", "Stack"]


@dataclass(frozen=True, slots=True)
class Permute:
    """One array: split its axes, reorder them, merge them."""

    split: Shape
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Several arrays, each viewed in a shape, concatenated along an axis."""

    parts: tuple[Shape, ...]
    axis: int


@dataclass(frozen=True, slots=True)
class Stack:
    """Several arrays along a new axis, of the result's axes."""

    axis: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """One array, viewed in a shape, cut along an axis into parts of these sizes."""

    split: Shape
    axis: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pad:
    """One array, with so many zeros more at the end of an axis."""

    axis: int
    more: int


Hand: TypeAlias = Permute | Join | Stack | Cut | Pad
"""How one writes the op by a framework's own ops."""
