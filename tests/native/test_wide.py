"""Transposes read along their rows, as is best on Intel's processors."""

from __future__ import annotations

import numpy as np
import pytest

import xlayout_native
from tests.native.oracle import Buffer, Loops, agree, alike, expect

pytestmark = pytest.mark.usefixtures("lines", "intel")


SHAPES = [
    (1, 1024, 4096),  # of the input: bytes of an element, rows, columns
    (1, 1400, 2100),
    (1, 191, 9000),
    (2, 512, 2112),
    (2, 1030, 1500),
    (4, 400, 2048),
    (4, 1303, 1699),
    (8, 255, 1024),
    (8, 900, 1111),
    (16, 130, 300),
    (16, 700, 401),
]


@pytest.mark.parametrize(("width", "high", "wide"), SHAPES)
@pytest.mark.parametrize("room", [0, 3])
def test_tiles_wider_than_a_stage(width: int, high: int, wide: int, room: int) -> None:
    places = (0, 0), (width, 0), (width, width), (1, 0), (1, 1)
    agree(((wide, 1, high + room), (high, wide, 1)), width, *places)


@pytest.mark.parametrize(("width", "high", "wide"), [(1, 1024, 700), (2, 261, 1200), (4, 200, 513)])
def test_batches(width: int, high: int, wide: int) -> None:
    rows = wide + 5
    loops = ((3, high * rows, high * wide), (wide, 1, high), (high, rows, 1))
    agree(loops, width, (0, 0), (width, 0), (48, 0))


def test_backwards_and_far_apart() -> None:
    agree(((1200, 1, 300), (300, -1200, 1)), 4)
    agree(((1200, 1, 300), (300, 2048, 1)), 4, (16, 0))


def test_remainders_of_a_few_rows_or_columns() -> None:
    """None is left with a few rows; those with a few columns are staged."""
    for high in (128, 129, 256, 257, 271, 511, 512, 513):
        for wide in (1024, 1025, 1030):
            for room in (0, -high % 16):  # rows of the result begin on lines, or anywhere
                agree(((wide, 1, high + room), (high, wide, 1)), 4)
    for high in (2113, 4033):
        agree(((2050, 1, high + -high % 64), (high, 2050, 1)), 1)


@pytest.mark.parametrize(
    "loops",
    [
        ((4100, 1, 4096), (4096, 4100, 1)),
        ((4100, 1, 4096), (16, 256 * 4100, 256), (128, 4100, 2), (2, 128 * 4100, 1)),
    ],
    ids=["plain", "compound"],
)
def test_a_plan_outlives_the_choice_of_kernels(loops: Loops) -> None:
    """Its tiles may be too large for a stage that other kernels would need."""
    moves, size = [(0, 0, (0, 0, loops))], 4096 * 4100
    x = Buffer(size, fill=np.random.default_rng(0))
    wanted = Buffer(size)
    expect(moves, 1, [x], [wanted])
    plan = xlayout_native.prepare(moves, 1, 1, 1)
    for other in xlayout_native.get_isas():
        xlayout_native.set_isa(other)
        for intel in (True, False):
            xlayout_native.set_intel(intel)
            y = Buffer(size, shift=1)
            xlayout_native.run(plan, 2, x.address, y.address)
            assert alike(y.bytes, wanted.bytes)
            assert y.intact()
