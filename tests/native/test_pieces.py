"""What is read in pieces: compound transposes with few columns, or few rows, and short blocks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xlayout_native
from tests.native.oracle import Buffer, Loops, Move, agree, alike, expect
from tests.native.test_copy import permuted

pytestmark = pytest.mark.usefixtures("lines", "maker")

# name -> (shape, axes): images of so many pixels and channels, from patches.
PATCHES = {
    "whole pieces": ((3, 5, 7, 16, 16, 3), (0, 5, 1, 3, 2, 4)),
    "four channels": ((3, 5, 7, 16, 16, 4), (0, 5, 1, 3, 2, 4)),
    "seven channels": ((2, 3, 33, 8, 32, 7), (0, 5, 1, 3, 2, 4)),
    "too many channels": ((2, 3, 33, 8, 16, 16), (0, 5, 1, 3, 2, 4)),
    "pieces that are not whole": ((3, 5, 7, 14, 14, 3), (0, 5, 1, 3, 2, 4)),
    "large patches, cut": ((1, 2, 3, 96, 1600, 3), (0, 5, 1, 3, 2, 4)),
    "many patches in a row, cut": ((1, 2, 700, 2, 32, 5), (0, 5, 1, 3, 2, 4)),
    "a last tile of few rows": ((1, 1, 43, 16, 32, 3), (0, 5, 1, 3, 2, 4)),
    "a last tile of less than a line": ((1, 1, 2731, 2, 16, 3), (0, 5, 1, 3, 2, 4)),
    "short rows": ((700, 2, 2, 2, 16, 3), (0, 5, 1, 3, 2, 4)),
    "two channels, of narrow images": ((700, 3, 1, 4, 32, 2), (0, 5, 1, 3, 2, 4)),
    "eight channels": ((2, 3, 7, 14, 56, 8), (0, 5, 1, 3, 2, 4)),
    "rows of images, one by one": ((700, 160, 3), (0, 2, 1)),
    "long rows": ((5, 30011, 3), (0, 2, 1)),
    "long rows of five": ((3, 30011, 5), (0, 2, 1)),
    "long rows of a matrix": ((150001, 7), (1, 0)),
    "less than a line": ((5, 13, 3), (0, 2, 1)),
    "a last tile of fewer rows than columns": ((3 * 584 + 5, 7), (1, 0)),
}


PLACES = (0, 0), (16, 16), (1, 1)  # of the result and of the source, in bytes past a line
Copy = tuple[tuple[int, ...], tuple[int, ...]]
Way = Callable[[tuple[int, ...], tuple[int, ...]], Loops]


def inverse(shape: tuple[int, ...], axes: tuple[int, ...]) -> Loops:
    """Patches from images."""
    return permuted(tuple(shape[k] for k in axes), tuple(axes.index(k) for k in range(len(axes))))


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", PATCHES)
@pytest.mark.parametrize("cached", [False, True], ids=["streamed", "cached"])
def test_patches(name: str, width: int, cached: bool) -> None:
    if cached:
        xlayout_native.set_thresholds(1 << 30, 0)
    agree(permuted(*PATCHES[name]), width, *PLACES)
    agree(inverse(*PATCHES[name]), width, *PLACES)


# name -> (shape, axes): planes to patches of so many pixels, and others; the last axis is a block.
BLOCKS = {
    "patches": ((3, 3, 14, 16, 14, 16), (0, 2, 4, 1, 3, 5)),
    "wide patches": ((3, 3, 7, 32, 7, 32), (0, 2, 4, 1, 3, 5)),
    "patches of three lanes": ((3, 3, 5, 48, 5, 48), (0, 2, 4, 1, 3, 5)),
    "many blocks in a row": ((40, 60, 48), (1, 0, 2)),
    "many lanes in a row": ((7, 15, 300, 16), (2, 0, 1, 3)),
    "far apart": ((32, 1000, 64), (1, 0, 2)),
    "long, pages apart": ((6, 50, 384), (1, 0, 2)),
    "long, in many places": ((100, 9, 512), (1, 0, 2)),
    "many places": ((70, 60, 32), (1, 0, 2)),
    "lanes in many places": ((40, 700, 16), (1, 0, 2)),
    "few, each alone": ((5, 3, 14, 2, 32), (2, 1, 3, 0, 4)),
    "few of each": ((2, 3, 2, 5, 16), (3, 1, 0, 2, 4)),
    "the last tile is short": ((3, 701, 16), (1, 0, 2)),
}


@pytest.mark.parametrize("width", [1, 2, 4, 16])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name: str, width: int) -> None:
    agree(permuted(*BLOCKS[name]), width, *PLACES)
    agree(inverse(*BLOCKS[name]), width, *PLACES)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("room", [0, 1, 64])
def test_with_gaps(width: int, room: int) -> None:
    """Between the channels of a result, the pixels of the input, and its patches; and backwards."""
    channels, high, wide = 3, 64, 48
    size = high * wide

    def loops(short: int, patch: int, step: int) -> Loops:
        rows = (wide, short, 1), (4, step, wide), (high // 4, patch, 4 * wide)
        return ((channels, 1, size + room), *rows)

    for short in (channels, channels + room):
        patch = 4 * wide * short + room
        agree(loops(short, patch, wide * short), width)
        agree(loops(short, patch, -wide * short), width, (16, 0))
        agree(loops(-short, patch, wide * short), width)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("ways", [2, 3, 4])
@pytest.mark.parametrize("room", [0, 1, 64])
def test_merged_with_gaps(width: int, ways: int, room: int) -> None:
    """Between the patches of a result, and everywhere in the input; and backwards."""
    pixels, high, many = 16, 4, 11
    patch = ways * pixels * high + room
    for row in (many * pixels, many * pixels + room, -many * pixels - room):
        channel = high * abs(row) + room
        loops = (
            (ways, channel, 1),
            (pixels, 1, ways),
            (high, row, ways * pixels),
            (many, pixels, patch),
        )
        agree(loops, width)
        agree((*loops, (3, 0, many * patch)), width, (16, 0))


@pytest.mark.parametrize("width", [1, 2, 4])
def test_columns_of_several_loops(width: int) -> None:
    """Short rows that are read again, one short row later."""
    rows: Loops = ((32, 3, 1), (14, 1000, 32), (9, 100, 14 * 32))
    size = 9 * 14 * 32
    agree(((3, 1, size), (5, 3, 3 * size), *rows), width)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_rows_that_the_columns_do_not_follow(width: int) -> None:
    """A gap as long as the other columns, and what would follow them."""
    agree(((16, 1, 1920), (40, 16, 48), (3, 640, 1)), width)


@pytest.mark.parametrize("cached", [False, True], ids=["streamed", "cached"])
@pytest.mark.parametrize(
    "copy", [PATCHES["whole pieces"], BLOCKS["patches"]], ids=["elements", "blocks"]
)
@pytest.mark.parametrize("way", [permuted, inverse])
def test_a_plan_outlives_the_choice_of_kernels(way: Way, copy: Copy, cached: bool) -> None:
    xlayout_native.set_thresholds(1 << 30 if cached else 0, 0)
    moves: list[Move] = [(0, 0, (0, 0, way(*copy)))]
    size = 2 * math.prod(copy[0])
    source = Buffer(size, fill=np.random.default_rng(0))
    target, wanted = Buffer(size), Buffer(size)
    expect(moves, 2, [source], [wanted])
    plan = xlayout_native.prepare(moves, 2, 1, 1)
    for isa in xlayout_native.get_isas():
        xlayout_native.set_isa(isa)
        target.bytes[:] = 0
        xlayout_native.run(plan, 1, source.address, target.address)
        assert target.bytes.tobytes() == wanted.bytes.tobytes()


@pytest.mark.parametrize("columns", [3, 5, 6, 7])
@pytest.mark.parametrize("rows", [(40, 3, 2), (517, 3, 2)], ids=str)
def test_a_plan_of_few_columns_outlives_it_too(rows: tuple[int, ...], columns: int) -> None:
    """Gathered rows of five to seven pairs of doubles are a power of two lines apart, or not."""
    loops = permuted((*rows, columns), (1, 3, 0, 2))
    moves: list[Move] = [(0, 0, (0, 0, loops))]
    source = Buffer(16 * math.prod(rows) * columns, fill=np.random.default_rng(0))
    target, wanted = Buffer(source.count), Buffer(source.count)
    expect(moves, 16, [source], [wanted])
    xlayout_native.set_thresholds(0, 0)
    for made in xlayout_native.get_isas():
        xlayout_native.set_isa(made)
        plan = xlayout_native.prepare(moves, 16, 1, 1)
        for isa in xlayout_native.get_isas():
            xlayout_native.set_isa(isa)
            target.bytes[:] = 0
            xlayout_native.run(plan, 1, source.address, target.address)
            assert alike(target.bytes, wanted.bytes), (made, isa)
            assert target.intact()


@st.composite
def patches(draw: st.DrawFn) -> tuple[Loops, int]:
    """Short rows of a few elements, whose pieces come from, or go, anywhere; and their width."""
    width = draw(st.sampled_from((1, 2, 4, 8, 16)))
    short = draw(st.integers(2, 16))
    pixels = draw(st.sampled_from((4, 8, 14, 16, 32, 48, 160)))
    others = draw(st.lists(st.sampled_from((2, 3, 5, 14, 16, 37)), min_size=1, max_size=4))
    while math.prod(others) * pixels * short * width > 1 << 20:
        others.pop()
    order = tuple(draw(st.permutations(range(len(others) + 1))))  # the last is that of the columns
    last = len(others)
    axes = [last + 1 if k == last else k for k in order]
    way = draw(st.sampled_from((permuted, inverse)))
    return way((*others, pixels, short), (*axes, last)), width


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(patches(), st.sampled_from((0, 0, 16, 1)), st.booleans())
def test_any(copy: tuple[Loops, int], shift: int, cached: bool) -> None:
    xlayout_native.set_thresholds(1 << 30 if cached else 0, 0)
    agree(*copy, (shift, 0))
