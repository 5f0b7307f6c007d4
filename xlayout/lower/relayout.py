"""Relayout: the short form of a layout that is a slice, a split, a permutation and a merge."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from xlayout.algebra import Layout
from xlayout.algebra.assemble import build
from xlayout.algebra.program import Program
from xlayout.backend import Relayout

__all__ = ["program_of", "relayout_of"]


@lru_cache(1024)
def program_of(layout: Layout) -> Program:
    """The straight-line program of a layout."""
    return build(*layout._parts)


def relayout_of(layout: Layout) -> Relayout | None:
    """The steps, if one of each is the whole program and the split never copies."""
    shape = layout.in_shape
    window: list[slice | int] = [slice(None)] * len(shape)
    kept = list(shape)
    cut: dict[int, int] = {}
    steps: dict[str, tuple[int, ...]] = {}
    for verb, _, argument in program_of(layout).steps:
        if verb == "slice" and not steps:
            axis, start, stop, by = argument
            window[axis], kept[axis] = slice(start, stop, by), len(range(start, stop, by))
            cut[axis] = start
            continue
        if verb == "reshape":
            verb = "merged" if "permute" in steps else "split"
        if verb in steps or verb not in ("split", "permute", "merged"):
            return None
        steps[verb] = argument
    if "permute" in steps and "split" in steps and not _refines(steps["split"], kept):
        return None
    if list(steps) == ["split"] and steps["split"] == tuple(
        n for axis, n in enumerate(kept) if n != 1 or axis not in cut
    ):
        del steps["split"]  # indexing drops the axis
        window = [cut.get(axis, at) if kept[axis] == 1 else at for axis, at in enumerate(window)]
    return (
        tuple(window) if cut else None,
        steps.get("split"),
        steps.get("permute"),
        steps.get("merged"),
    )


def _refines(split: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether each axis of `shape` is a product of consecutive axes of `split`."""
    left = list(split)
    for n in shape:
        while n > 1 and left and n % left[0] == 0:
            n //= left.pop(0)
        if n != 1:
            return False
    return all(n == 1 for n in left)
