"""Transposes read along their rows, as is best on Intel's processors; also on others, for once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xlayout_native
from tests.native.oracle import Buffer, Loops, agree, expect, same
from tests.native.test_copy import permuted

VECTORS = [isa for isa in xlayout_native.get_isas() if isa.startswith("avx512")]
pytestmark = [
    pytest.mark.skipif(not VECTORS, reason="needs a vector that is a line"),
    pytest.mark.usefixtures("isa"),
]


@pytest.fixture(params=VECTORS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set whose vectors are lines, as on one of Intel's processors."""
    usual, intel = xlayout_native.get_isa(), xlayout_native.get_intel()
    xlayout_native.set_isa(request.param)
    xlayout_native.set_intel(True)
    xlayout_native.set_thresholds(0, 0)
    yield request.param
    xlayout_native.set_isa(usual)
    xlayout_native.set_intel(intel)
    xlayout_native.set_thresholds(8 << 20, 4 << 20)


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
@pytest.mark.parametrize("shift", ["none", "an element", "a byte"])
@pytest.mark.parametrize("room", [0, 3])
def test_tiles_wider_than_a_stage(width: int, high: int, wide: int, shift: str, room: int) -> None:
    by = {"none": 0, "an element": width, "a byte": 1}[shift]
    agree(((wide, 1, high + room), (high, wide, 1)), width, by)
    agree(((wide, 1, high + room), (high, wide, 1)), width, by, by)


@pytest.mark.parametrize(("width", "high", "wide"), [(1, 1024, 700), (2, 261, 1200), (4, 200, 513)])
def test_batches(width: int, high: int, wide: int) -> None:
    rows = wide + 5
    loops = ((3, high * rows, high * wide), (wide, 1, high), (high, rows, 1))
    for shift in (0, width, 48):
        agree(loops, width, shift)


def test_backwards_and_far_apart() -> None:
    agree(((1200, 1, 300), (300, -1200, 1)), 4, 0)
    agree(((1200, 1, 300), (300, 2048, 1)), 4, 16)


def test_remainders_of_a_few_rows_or_columns() -> None:
    """None is left with a few rows; those with a few columns are staged."""
    for high in (128, 129, 256, 257, 271, 511, 512, 513):
        for wide in (1024, 1025, 1030):
            for room in (0, -high % 16):  # rows of the result begin on lines, or anywhere
                agree(((wide, 1, high + room), (high, wide, 1)), 4, 0)
    for high in (2113, 4033):
        agree(((2050, 1, high + -high % 64), (high, 2050, 1)), 1, 0)


# name -> (shape, axes): rows or columns of several loops, which _places.h finds by table.
COMPOUND = {
    "rows": ((9, 2, 64, 600), (3, 0, 2, 1)),
    "columns": ((1200, 9, 40, 2), (1, 3, 2, 0)),
    "both": ((2, 30, 5, 70, 2, 10), (4, 3, 5, 2, 1, 0)),
    "rows that are not cut on lines": ((16, 3, 37, 531), (3, 0, 2, 1)),
    "columns that are not cut on lines": ((1100, 19, 37, 3), (1, 3, 2, 0)),
    "batch": ((3, 13, 2, 40, 520), (0, 4, 1, 3, 2)),
    "a few rows are left": ((31, 33, 600), (2, 1, 0)),
    "a few columns are left": ((1111, 1030, 2), (2, 1, 0)),
    "rows whose middle loop is cut": ((20, 20, 20, 600), (3, 2, 1, 0)),
    "rows and columns whose middle loop is cut": ((20, 20, 20, 5, 5, 5), (4, 3, 5, 2, 1, 0)),
}


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", COMPOUND)
@pytest.mark.parametrize("shift", ["none", "16 bytes", "a byte"])
def test_compounds(name: str, width: int, shift: str) -> None:
    by = {"none": 0, "16 bytes": 16, "a byte": 1}[shift]
    agree(permuted(*COMPOUND[name]), width, by, by)


@st.composite
def compounds(draw: st.DrawFn) -> tuple[Loops, int]:
    """Loops of several tiles, up to four for rows and four for columns; and bytes of an element."""
    width = draw(st.sampled_from((1, 2, 4, 8)))
    shape: list[int] = []
    for room in (6000 // width, 1500):
        side = draw(st.lists(st.sampled_from((2, 3, 5, 8, 20, 37, 64)), max_size=3))
        while math.prod(side) > room // 2:
            side.pop()
        shape += [room // math.prod(side), *side]
    backwards = tuple(reversed(range(len(shape))))
    axes = draw(st.one_of(st.just(backwards), st.permutations(backwards)))
    return permuted(tuple(shape), tuple(axes)), width


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(compounds(), st.sampled_from((0, 0, 16, 1)))
def test_any_compound(copy: tuple[Loops, int], shift: int) -> None:
    agree(*copy, shift)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("room", [0, 1, 64])
def test_compounds_with_gaps(width: int, room: int) -> None:
    """Between the rows of the result, between those of the input, and backwards."""
    n, d = 3 * 2 * 200, 600
    rows: Loops = ((3, 400 * d, 400), (200, d, 2), (2, 200 * d, 1))
    back: Loops = ((3, 400 * d, 400), (200, d, 2), (2, -200 * d, 1))
    for loops in (rows, back):
        agree(((d, 1, n + room), *loops), width, 0)
    wide = d + room
    agree(((d, 1, n), *((k, step // d * wide, to) for k, step, to in rows)), width, 0)


def test_two_compounds_in_a_plan() -> None:
    """One thread makes tiles of both in turn."""
    n, d = 2 * 1024, 600

    def loops(half: int) -> Loops:
        heads = (n // half // 2, 2 * half * d, 2 * half)
        return (d, 1, n), heads, (half, d, 2), (2, half * d, 1)

    moves = [(k, k, (0, 0, loops(half))) for k, half in enumerate((64, 128))]
    x = [Buffer(n * d * 2, fill=np.random.default_rng(k)) for k in range(2)]
    same(moves, 2, x, [Buffer(n * d * 2) for _ in range(2)], threads=1)


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
            assert y.bytes.tobytes() == wanted.bytes.tobytes()
            assert y.intact()
