"""Before a device is used, the kernel makes a few moves there; each has to come out right."""

from __future__ import annotations

import ctypes
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import as_strided

from xlayout_torch import cuda

KINDS = {1: ctypes.c_uint8, 4: ctypes.c_int32}


def window(address: int, itemsize: int, first: int, loops: Any, side: int) -> np.ndarray:
    """The elements of one side of some loops, in memory that begins at an address."""
    one = np.ctypeslib.as_array((KINDS[itemsize] * 1).from_address(address + first * itemsize))
    return as_strided(one, [loop[0] for loop in loops], [loop[side] * itemsize for loop in loops])


@pytest.mark.parametrize("left_out", [None, *range(5)])
def test_one_move_that_is_not_made_is_enough_to_fail(
    left_out: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(moves: Any, itemsize: int, xs: list[int], ys: list[int], _device: Any) -> bool:
        for source, target, (start, to, loops) in moves:
            if next(numbers) != left_out:
                made = window(xs[source], itemsize, start, loops, 1)
                window(ys[target], itemsize, to, loops, 2)[...] = made
        return True

    numbers = count()
    monkeypatch.setattr(cuda, "copy", copy)
    found = cuda.why_not.__wrapped__(torch.device("cpu"))
    assert found == ("" if left_out is None else "a trial came out wrong")
