"""Small: a small layout in one call of the compiled kernel, where numpy would take several.

On a kilobyte the cost is in the calls. The kernel saves an eighth of it where axes are split and
merged again, and two thirds of a program of slices and concatenations. A copy of one view numpy
makes as fast up to 2048 elements; beyond that its transposes take at least twice as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import xlayout_native
from xlayout_native.strided import FEW, Moves, Plans
from xlayout_native.switch import wanted
from xlayout_numpy.native import are_bytes

__all__ = ["quick"]

_WIDTHS = {n: n for n in (1, 2, 4, 8, 16)}


def quick(
    recipe: Callable[..., Any],
    moves: Moves | None,
    inputs: int,
    shapes: Sequence[tuple[int, ...]],
    /,
) -> Callable[..., Any]:
    if moves is None:
        return recipe
    plans = Plans(moves, inputs, shapes, _WIDTHS.get)
    shape, whole = shapes[0], plans.whole
    views = whole and _by_views(moves, shapes)
    single = inputs == len(shapes) == 1
    if not plans.widest or not (whole or single):
        return recipe
    if views and sum(map(math.prod, shapes)) <= FEW:
        return recipe
    copy, empty = xlayout_native.run_arrays, np.empty if whole else np.zeros

    def one(x: Any) -> Any:
        dtype = x.dtype
        plan = plans[dtype.itemsize]
        # `are_bytes`, of one array: to call it takes a tenth of the whole.
        if plan is None or not wanted() or type(x) is not np.ndarray or dtype.hasobject:
            return recipe(x)
        if not whole and dtype.kind in "SU":  # what numpy fills text with is "0"
            return recipe(x)
        y = empty(shape, dtype)
        return y if copy(plan, 1, x, y) else recipe(x)

    def several(*arrays: Any) -> Any:
        dtype = arrays[0].dtype
        plan = plans[dtype.itemsize]
        if plan is None or not wanted() or not are_bytes(dtype, *arrays):
            return recipe(*arrays)
        made = [empty(shape, dtype) for shape in shapes]
        if not copy(plan, 1, *arrays, *made):
            return recipe(*arrays)
        return made[0] if len(made) == 1 else tuple(made)

    return one if single else several


def _by_views(moves: Moves, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether each result is the copy of one view, with no axes merged: loops end where axes do.

    >>> _by_views(((0, 0, (0, 0, ((3, 1, 2), (2, 3, 1)))),), [(3, 2)])
    True
    >>> _by_views(((0, 0, (0, 0, ((3, 1, 2), (2, 3, 1)))),), [(6,)])
    False
    """
    ends = [{math.prod(shape[k:]) for k in range(len(shape))} for shape in shapes]
    return len(moves) == len(shapes) and all(
        n * step in ends[target] for _, target, (_, _, loops) in moves for n, _, step in loops
    )
