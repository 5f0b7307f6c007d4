"""Touched: the axes that an op depends on, so that a compiler may leave the others dynamic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xlayout.algebra.shapes import axis_of

__all__ = ["Touched", "axis_only", "nothing"]

Touched = Callable[[int, dict[str, Any]], frozenset[int]]
"""(number of axes, options) -> axes whose size the layout depends on; the others may be dynamic."""


def axis_only(ndim: int, options: dict[str, Any]) -> frozenset[int]:
    """Only `axis=` is touched."""
    return frozenset({axis_of(options.get("axis", 0), ndim)})


def nothing(_ndim: int, _options: dict[str, Any]) -> frozenset[int]:
    """No axis is touched: whole axes move."""
    return frozenset()
