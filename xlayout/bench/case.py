"""Case: an op at one size, as xlayout and by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xlayout.algebra import Layout
from xlayout.bench.hands import Hand

__all__ = ["WIDTH", "Case"]

WIDTH = 4096
"""Elements of a row."""


@dataclass(frozen=True, slots=True)
class Case:
    """An op at one size.

    Args:
        layout: what the op does, which also defines the answer; its inputs are the op's.
        ours: the op, on arrays; takes `out=`.
        hand: the same in a framework's own ops.
        einops: pattern and sizes, if einops can express it.
    """

    layout: Layout
    ours: Callable[..., Any]
    hand: Hand
    einops: tuple[str, dict[str, int]] | None = None
