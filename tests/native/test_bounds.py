"""Bounds: a copy reads no byte before its source, nor any after it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import xlayout_native
from tests.native.oracle import Buffer, Loops, alike, fenced

pytestmark = pytest.mark.usefixtures("isa", "thresholds")


def weave(rows: int, count: int, ways: int, block: int) -> Loops:
    """Rows of `ways` columns of `count` blocks, to blocks from each column in turn."""
    row = count * ways * block
    return (
        (rows, row, row),
        (count, block, ways * block),
        (ways, count * block, block),
        (block, 1, 1),
    )


def deal(rows: int, count: int, ways: int, block: int) -> Loops:
    """The inverse of `weave`."""
    return tuple((n, z, x) for n, x, z in weave(rows, count, ways, block))


@pytest.mark.parametrize("at_the_end", [False, True])
@pytest.mark.parametrize("form", [weave, deal])
@pytest.mark.parametrize(
    "shape",
    [
        *((37, half, 2, 1) for half in (17, 33, 40, 63, 64, 80, 96, 127, 500)),
        *((3, count, ways, 1) for count in (1025, 5001) for ways in (2, 4, 8)),
        *((3, 700, 2, block) for block in (2, 4, 8, 16, 32)),
        *((2, 300, 3, block) for block in (3, 24, 40, 63, 64, 65, 100, 1000)),
        *((2, 5000, ways, 12) for ways in (2, 65)),
        *((2, 1001, ways, block) for ways in (3, 7, 15) for block in (1, 2, 4, 8, 16)),
        (1, 130, 130, 1),
        (1, 70, 71, 4),
    ],
)
def test_nothing_outside_is_read(
    form: Callable[[int, int, int, int], Loops], shape: tuple[int, int, int, int], at_the_end: bool
) -> None:
    loops = form(*shape)
    count = int(np.prod(shape))
    x = fenced(count, at_the_end=at_the_end)
    x[:] = np.random.default_rng(count).integers(0, 256, count, np.uint8)
    axes = x.reshape(shape[0], shape[2], shape[1], shape[3])
    if form is deal:
        axes = x.reshape(shape)
    wanted = np.ascontiguousarray(axes.swapaxes(1, 2))
    plan = xlayout_native.prepare([(0, 0, (0, 0, loops))], 1, 1, 1)
    y = Buffer(count)
    for shift in (0, 1, 16, 63):
        y.move(shift)
        xlayout_native.run(plan, 2, int(x.ctypes.data), y.address)
        assert alike(y.bytes, wanted)
        assert y.intact()
