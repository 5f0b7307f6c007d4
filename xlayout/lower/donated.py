"""Donated: arrays that are given away, whose memory the result may reuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xlayout.algebra import Layout
from xlayout.backend import Backend
from xlayout.lower.moves import moves_of
from xlayout.lower.run import call

__all__ = ["run_donated"]


def run_donated(backend: Backend, layout: Layout, arrays: Sequence[Any], fill: Any) -> Any:
    """A layout on concrete arrays of its shapes, in their own memory if possible.

    The arrays are empty afterwards in either case.

    Raises:
        TypeError: for arrays that cannot be emptied, before anything is done.
    """
    releases = [backend.release(x) for x in arrays]
    alone = len(arrays) == len(layout.out_shapes) == 1 and layout.in_size == layout.out_size
    if alone and not layout.has_holes:  # in place, holes would keep old elements
        moves = moves_of(layout)
        try:
            result = backend.in_place(moves, arrays[0], layout.out_shapes[0])
            if result is not None:
                releases[0]()
                return result
        except BaseException:  # of a signal, say: elements may have moved, and x is no longer valid
            releases[0]()
            raise
    result = call(layout, *arrays, fill=fill)
    for release in releases:
        release()
    return result
