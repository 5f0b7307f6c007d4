"""Dense: rows of pairs that follow one another, wherever they begin, and rows that nearly do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.native.oracle import Buffer, Loops, Move, agree, same

pytestmark = pytest.mark.usefixtures("isa", "thresholds")

HALVES = (16, 32, 33, 40, 48, 64, 80, 96, 128, 136, 192, 500, 512, 528, 1000, 1088)  # bytes
SHIFTS = (0, 1, 16, 40, 63)  # of the result, in bytes past a line
ON_A_LINE = tuple((shift, 0) for shift in SHIFTS)  # the source
ROOM = 300_000  # bytes: some tiles


def unzipped(half: int, rows: int) -> Loops:
    """Rows of pairs, in elements, each to two halves."""
    return ((rows, 2 * half, 2 * half), (2, 1, half), (half, 2, 1))


def zipped(half: int, rows: int) -> Loops:
    """Rows of two halves, in elements, each to pairs."""
    return ((rows, 2 * half, 2 * half), (half, 1, 2), (2, half, 1))


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("form", [unzipped, zipped])
def test_rows_of_pairs(form: Callable[[int, int], Loops], half: int, itemsize: int) -> None:
    rows = ROOM // (2 * half)
    agree(form(half // itemsize, rows), itemsize, *((shift, shift % 3) for shift in SHIFTS))
    agree(form(half // itemsize, 3), itemsize, *ON_A_LINE)


@pytest.mark.parametrize("tail", [31, 32, 33, 40, 47, 48, 62, 63])
def test_a_last_tile_that_is_shorter_than_the_way_to_a_line(tail: int) -> None:
    row = (1 << 16) + tail
    pitch = (row // 64 + 2) * 64
    agree(((2, 2 * row, 2 * pitch), (row, 2, 1), (2, 1, pitch)), 1, *ON_A_LINE)


NEARLY = {
    "rows apart in the result": ((900, 64, 96), (2, 1, 32), (32, 2, 1)),
    "rows apart in the source": ((900, 96, 64), (2, 1, 32), (32, 2, 1)),
    "halves apart in the result": ((900, 64, 128), (2, 1, 64), (32, 2, 1)),
    "halves apart in the source": ((900, 128, 64), (32, 1, 2), (2, 64, 1)),
    "halves in two places": ((900, 32, 64), (32, 1, 2), (2, 50_000, 1)),
    "rows backwards": ((900, -64, 64), (32, 1, 2), (2, 32, 1)),
    "four ways": ((900, 128, 128), (4, 1, 32), (32, 4, 1)),
    "four rows": ((900, 128, 128), (32, 1, 4), (4, 32, 1)),
    "the same row again": ((900, 0, 64), (2, 1, 32), (32, 2, 1)),
    "groups of rows apart": ((7, 9000, 7000), (100, 64, 64), (2, 1, 32), (32, 2, 1)),
    "groups of rows in turn": ((100, 64, 640), (10, 6400, 64), (32, 1, 2), (2, 32, 1)),
    "halves in turn": ((2, 96, 32), (2, 1, 64), (32, 2, 1)),
    "long rows": ((3, 1 << 18, 1 << 18), (2, 1, 1 << 17), (1 << 17, 2, 1)),
    "one row": ((2, 1, 32), (32, 2, 1)),
}


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("name", NEARLY)
def test_rows_that_are_nearly_so(name: str, itemsize: int) -> None:
    agree(NEARLY[name], itemsize, *ON_A_LINE)


@pytest.mark.parametrize("shift", SHIFTS)
def test_beside_other_copies(shift: int) -> None:
    count = 40_000
    moves: list[Move] = [
        (0, 0, (0, 0, unzipped(32, count // 64))),
        (0, 0, (count, count + 5, zipped(64, count // 128))),
        (0, 1, (7, 3, ((200, 1, 200), (150, 200, 1)))),
    ]
    x = Buffer(2 * count, shift=1, fill=np.random.default_rng(shift))
    same(moves, 1, [x], [Buffer(2 * count + 5, shift=shift) for _ in range(2)])
