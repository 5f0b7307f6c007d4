"""Room: caches that hold no more than they should."""

from __future__ import annotations

from typing import Any

__all__ = ["make_room"]


def make_room(kept: dict[Any, Any], most: int) -> None:
    """Make room for one more entry in a cache, by clearing it if it holds `most` entries.

    >>> runs = {1: "one", 2: "two"}
    >>> make_room(runs, 3), make_room(runs, 2), runs
    (None, None, {})
    """
    if len(kept) >= most:
        kept.clear()
