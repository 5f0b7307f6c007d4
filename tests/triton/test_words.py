"""Narrow elements are moved in words where their rows are not whole vectors, and only there."""

from __future__ import annotations

import pytest

from tests.native.test_copy import permuted
from xlayout_triton.side import FAR
from xlayout_triton.tile import Tile, cut
from xlayout_triton.words import FEW_COLUMNS, FEW_ROWS, SHIFTED


def odd_tile(itemsize: int) -> Tile:
    """The tile of a large transpose whose rows begin anywhere."""
    found = cut(0, 0, permuted((4089, 8185), (1, 0)), itemsize, (16, 16))
    assert found is not None
    return found.tile


@pytest.mark.parametrize(
    ("shape", "itemsize", "aligned", "shifted"),
    [
        ((4089, 8185), 1, (16, 16), True),
        ((4089, 8185), 2, (16, 16), True),
        ((4088, 8184), 2, (2, 16), True),
        ((4090, 8186), 1, (16, 16), True),  # vectors of two elements are narrower, too
        ((4090, 8186), 2, (16, 16), False),  # and those of four bytes are not
        ((4089, 8185), 4, (16, 16), True),
        ((4090, 8186), 4, (16, 16), False),
        ((4089, 8185), 8, (16, 16), False),
        ((256, 129), 1, (16, 16), True),
        ((257, 128), 1, (16, 16), True),
        ((128, 65), 2, (16, 16), True),
        ((127, 65), 2, (16, 16), False),
        ((128, 63), 2, (16, 16), False),
        ((255, 129), 1, (16, 16), False),  # fewer rows than a tile has
        ((257, 127), 1, (16, 16), False),  # columns
    ],
)
def test_narrow_elements_are_shifted_where_rows_begin_within_words(
    shape: tuple[int, int], itemsize: int, aligned: tuple[int, int], shifted: bool
) -> None:
    found = cut(0, 0, permuted(shape, (1, 0)), itemsize, aligned)
    assert found is not None
    assert (found.tile.way == SHIFTED) is shifted
    if shifted:
        _, b, a, _ = found.tile.sizes
        assert (a * itemsize, b * itemsize) == {1: (124, 248), 2: (248, 224), 4: (248, 224)}[
            itemsize
        ]


def test_rows_that_are_far_apart_or_backwards_are_not_shifted() -> None:
    """Their distance is a number of 32 bits."""
    n, far = 1000, FAR - 1
    for step, shifted in ((n + 1, True), (far, True), (far + 1, False), (-n - 1, False)):
        for loops in (((n, step, 1), (n, 1, n + 1)), ((n, n + 1, 1), (n, 1, step))):
            found = cut(0, 0, loops, 1, (1, 1))
            assert found is not None
            assert (found.tile.way == SHIFTED) is shifted


@pytest.mark.parametrize(
    ("shape", "itemsize", "aligned", "narrow"),
    [
        ((4096, 3), 1, (16, 16), True),  # three are no vector
        ((4099, 3), 1, (1, 1), True),
        ((4099, 3), 2, (2, 2), True),
        ((4099, 7), 1, (1, 1), True),
        ((4099, 2), 1, (8, 1), True),
        ((4099, 2), 1, (4, 16), False),  # no element may begin a word
        ((7, 4099, 6), 1, (16, 16), False),  # not in all matrices
        ((7, 4100, 6), 1, (16, 16), True),
        ((4096, 4), 1, (16, 16), False),  # vectors
        ((4099, 8), 1, (16, 16), True),
        ((4099, 9), 1, (16, 16), False),
        ((4099, 3), 4, (16, 16), False),
        ((127, 3), 2, (16, 16), False),
        ((128, 3), 2, (16, 16), True),
        ((255, 3), 1, (16, 16), False),
        ((256, 3), 1, (16, 16), True),
    ],
)
def test_a_few_columns_or_rows_of_narrow_elements_are_moved_in_words(
    shape: tuple[int, ...], itemsize: int, aligned: tuple[int, int], narrow: bool
) -> None:
    axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    found = cut(0, 0, permuted(shape, axes), itemsize, aligned)
    assert found is not None
    assert (found.tile.way == FEW_COLUMNS) is narrow
    back = cut(0, 0, permuted([shape[k] for k in axes], axes), itemsize, aligned[::-1])
    assert back is not None
    assert (back.tile.way == FEW_ROWS) is narrow


@pytest.mark.parametrize(("few", "itemsize", "length"), [(3, 1, 1984), (5, 1, 992), (4, 2, 992)])
def test_a_warp_has_fewer_rows_of_words_if_each_has_many(
    few: int, itemsize: int, length: int
) -> None:
    for shape, sizes in (((4097, few), (1, length, few, 1)), ((few, 4097), (1, few, length, 1))):
        found = cut(0, 0, permuted(shape, (1, 0)), itemsize, (16, 16))
        assert found is not None
        assert (found.tile.sizes, found.tile.warps) == (sizes, 1)
