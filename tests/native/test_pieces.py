"""Compound transposes with few columns, split straight from pieces of short rows."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xlayout_native
from tests.native.oracle import Loops, agree
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
}


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", PATCHES)
@pytest.mark.parametrize("shift", ["none", "16 bytes", "a byte"])
@pytest.mark.parametrize("cached", [False, True], ids=["streamed", "cached"])
def test_images_from_patches(name: str, width: int, shift: str, cached: bool) -> None:
    by = {"none": 0, "16 bytes": 16, "a byte": 1}[shift]
    if cached:
        xlayout_native.set_thresholds(1 << 30, 0)
    agree(permuted(*PATCHES[name]), width, by, by)


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
        agree(loops(short, patch, wide * short), width, 0)
        agree(loops(short, patch, -wide * short), width, 16)
        agree(loops(-short, patch, wide * short), width, 0)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_columns_of_several_loops(width: int) -> None:
    """Short rows that are read again, one short row later."""
    rows: Loops = ((32, 3, 1), (14, 1000, 32), (9, 100, 14 * 32))
    size = 9 * 14 * 32
    agree(((3, 1, size), (5, 3, 3 * size), *rows), width, 0)


@st.composite
def patches(draw: st.DrawFn) -> tuple[Loops, int]:
    """Short rows of a few elements, whose pieces are in any order; and bytes of an element."""
    width = draw(st.sampled_from((1, 2, 4, 8, 16)))
    short = draw(st.integers(2, 16))
    pixels = draw(st.sampled_from((4, 8, 14, 16, 32, 48, 160)))
    others = draw(st.lists(st.sampled_from((2, 3, 5, 14, 16, 37)), min_size=1, max_size=4))
    while math.prod(others) * pixels * short * width > 1 << 20:
        others.pop()
    order = tuple(draw(st.permutations(range(len(others) + 1))))  # the last is that of the columns
    last = len(others)
    axes = [last + 1 if k == last else k for k in order]
    return permuted((*others, pixels, short), (*axes, last)), width


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(patches(), st.sampled_from((0, 0, 16, 1)), st.booleans())
def test_any(copy: tuple[Loops, int], shift: int, cached: bool) -> None:
    xlayout_native.set_thresholds(1 << 30 if cached else 0, 0)
    agree(*copy, shift)
