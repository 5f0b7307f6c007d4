"""Blocks and long rows of any width, which start anywhere, each where the one before ended."""

from __future__ import annotations

import pytest

from tests.native.oracle import Loops, Places, agree

pytestmark = pytest.mark.usefixtures("isa", "thresholds")

WIDTHS = (3, 12, 24, 33, 40, 63, 64, 65, 72, 100, 127, 192, 1000, 1088)  # bytes of a block
PLACES = tuple((shift, shift % 5) for shift in (0, 1, 16, 33, 63))  # bytes past a line
ROOM = 400_000  # bytes: some tiles
ELSEWHERE: list[Loops] = [  # in blocks
    ((200, 7, 1), (3, 2000, 203)),  # columns that do not continue in the next
    ((200, 3, 1), (3, 1, 200)),  # rows as they lie
    ((200, 3, 2), (3, 1, 401)),  # with gaps between blocks,
    ((40, 15, 15), (5, 3, 1), (3, 1, 5)),  # in groups,
    ((40, 15, 16), (5, 3, 1), (3, 1, 5)),  # and with gaps between groups
    ((3, 3000, 3000), (3, 1, 1000), (1000, 3, 1)),  # some at a time
    ((3, 3000, 3003), (3, 1, 1001), (1000, 3, 1)),
    ((200, -3, 1), (3, 1, 200)),
    ((200, 0, 1), (3, 1, 200)),
    ((2, 1, 200), (200, 2, 1)),
    ((600, 2, 1),),
    ((600, 2, 3),),
]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("ways", [2, 3, 24, 65, 300])
def test_blocks_in_turn_and_back(ways: int, width: int) -> None:
    _in_turn_and_back(ways, width, PLACES)


def _in_turn_and_back(ways: int, width: int, places: Places) -> None:
    rows = max(ROOM // ways // width, 2)
    block = (width, 1, 1)
    here, there = (rows, ways * width, width), (ways, width, rows * width)
    agree((here, there, block), 1, *places)
    agree(tuple((n, z, x) for n, x, z in (there, here, block)), 1, *places)


@pytest.mark.usefixtures("maker")
@pytest.mark.parametrize("width", [64, 96, 128, 200, 512, 1024, 1088])
@pytest.mark.parametrize("ways", [2, 3, 9, 40])
def test_blocks_in_bursts(ways: int, width: int) -> None:
    places = (0, 0), (16, 1), (33, 3)
    _in_turn_and_back(ways, width, places)
    rows, row = max(ROOM // 5 // ways // width, 2), ways * width
    here, there = (rows, row, width), (ways, width, rows * width)
    agree(((5, rows * row, rows * row), here, there, (width, 1, 1)), 1, *places)


@pytest.mark.parametrize("width", [4096, 5000, (1 << 16) - 1, 1 << 16, (1 << 16) + 65])
@pytest.mark.parametrize("ways", [2, 3])
def test_blocks_of_pages(ways: int, width: int) -> None:
    _in_turn_and_back(ways, width, ((0, 0), (33, 3)))


@pytest.mark.parametrize("width", [7, 24, 32, 100, 1000])
@pytest.mark.parametrize("loops", ELSEWHERE)
def test_blocks_elsewhere(loops: Loops, width: int) -> None:
    _elsewhere(loops, width, PLACES)


def _elsewhere(loops: Loops, width: int, places: Places) -> None:
    agree((*((n, x * width, z * width) for n, x, z in loops), (width, 1, 1)), 1, *places)


@pytest.mark.usefixtures("maker")
@pytest.mark.parametrize("width", [64, 100, 1024])
@pytest.mark.parametrize("loops", ELSEWHERE)
def test_lines_elsewhere(loops: Loops, width: int) -> None:
    _elsewhere(loops, width, ((0, 0), (16, 1)))


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("ways", [2, 4, 8])
@pytest.mark.parametrize("extra", [0, 1, 31, 32, 33, 63, 1023])
def test_rows_woven_and_dealt_out(extra: int, ways: int, itemsize: int) -> None:
    count = 2048 // itemsize + extra
    rows = max(ROOM // (count * ways * itemsize), 2)
    outer, row = (rows, ways * count, ways * (count + 3) + 1), (count, 1, ways)
    agree((outer, row, (ways, count, 1)), itemsize, *PLACES)
    agree((outer, (ways, 1, count + 3), (count, ways, 1)), itemsize, *PLACES)
