"""A strided copy is cut so that both sides move in wide vectors, wherever it may be large."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.test_copy import permuted
from tests.triton.cases import IMAGES, PATCHES
from tests.triton.emulator import positions, turned
from xlayout_triton.tile import (
    LINE,
    MORE_WARPS,
    OUTER,
    SMALL_TILE,
    STRIP,
    STRIP_WARPS,
    TILE,
    WARPS,
    Loop,
    Tile,
    _digit,
    cut,
)

LARGE = {
    "rows": ((2, 2048, 4096), (1, 0, 2)),
    "short rows": ((8, 2048, 32, 128), (0, 2, 1, 3)),
    "vectors": ((4096, 2, 256, 8), (0, 2, 1, 3)),
    "zip": ((2, 1 << 24), (1, 0)),
    "zip rows": ((4096, 2, 2048), (0, 2, 1)),
    "unzip rows": ((4096, 2048, 2), (0, 2, 1)),
    "rope": ((4096, 64, 64, 2), (0, 1, 3, 2)),
    "transpose": ((4096, 8192), (1, 0)),
    "experts": ((64, 1024, 512), (0, 2, 1)),
    "rope, transpose": ((32, 2, 128, 4096), (3, 0, 2, 1)),
    "transpose, rope": ((4096, 32, 128, 2), (1, 3, 2, 0)),
}


TURNED = {"transpose", "experts", "rope, transpose", "transpose, rope"}
"""Those whose sides are short rows, axes of the one across those of the other."""


def tile_of(name: str, itemsize: int) -> Tile:
    """The tile of a large transposition between aligned arrays."""
    found = cut(0, 0, permuted(*LARGE[name]), itemsize, (16, 16))
    assert found is not None
    return found.tile


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", LARGE)
def test_both_sides_are_moved_in_whole_vectors_and_lines(name: str, itemsize: int) -> None:
    found = cut(0, 0, permuted(*LARGE[name]), itemsize, (16, 16))
    assert found is not None
    tile = found.tile
    assert tile.vectors == (16 // tile.unit, 16 // tile.unit)
    assert np.prod(tile.sizes) * tile.unit == tile.nbytes == (TILE if name in TURNED else STRIP)
    for run, reach, order in zip(tile.runs, found.reach, tile.orders, strict=True):
        length = np.prod([tile.sizes[k] for k in order[4 - run :]]) * tile.unit
        assert LINE <= length <= reach <= tile.nbytes


SHAPES = {
    ("rows", 2): (8, (1, 1, 1, 512), (1, 1)),
    ("vectors", 2): (8, (1, 2, 128, 2), (2, 3)),
    ("zip", 1): (1, (1, 2, 2048, 1), (2, 3)),
    ("unzip rows", 2): (2, (1, 1024, 2, 1), (3, 2)),
    ("rope", 2): (2, (16, 64, 2, 1), (4, 4)),
    ("transpose", 1): (1, (1, 256, 128, 1), (2, 2)),
    ("transpose", 2): (2, (1, 128, 128, 1), (2, 2)),
    ("transpose", 4): (4, (1, 128, 64, 1), (2, 2)),
    ("transpose", 16): (8, (1, 64, 32, 2), (2, 2)),
    ("rope, transpose", 2): (2, (64, 2, 128, 1), (2, 3)),
    ("transpose, rope", 2): (2, (64, 128, 2, 1), (3, 2)),
}


@pytest.mark.parametrize("case", SHAPES)
def test_the_shape_of_a_tile(case: tuple[str, int]) -> None:
    tile = tile_of(*case)
    assert (tile.unit, tile.sizes, tile.runs) == SHAPES[case]


READ, WRITTEN = (0, 1, 2, 3), (0, 2, 1, 3)


@pytest.mark.parametrize(
    ("shape", "axes", "sizes", "orders", "reach"),
    [
        ((7, 3000, 1000), (0, 2, 1), (1, 128, 128, 1), (READ, WRITTEN), (256, 256)),
        # a row of three steps and then more, of which a tile has a line or more
        ((3, 700, 300), (2, 1, 0), (32, 4, 64, 1), (READ, (2, 0, 1, 3)), (128, 2 * 3 * 32)),
        ((3, 33, 300), (2, 1, 0), (32, 4, 64, 1), (READ, (2, 0, 1, 3)), (128, 2 * 3 * 32)),
        # the axis that continues a is not the one that comes next in the output
        ((300, 6, 64, 2), (3, 2, 1, 0), (64, 64, 2, 1), ((1, 0, 2, 3), WRITTEN), (256, 128)),
        # it continues both
        ((4, 1000, 4), (2, 1, 0), (128, 4, 4, 1), ((1, 0, 2, 3), (2, 0, 1, 3)), (1024, 1024)),
        # w continues q, and p continues q and c, which are short: all four
        ((8, 4, 32, 2, 32, 2), PATCHES, (2, 4, 2, 32), ((1, 0, 3, 2), (3, 0, 2, 1)), (256, 1024)),
        ((8, 32, 32, 2, 2, 4), IMAGES, (32, 2, 4, 2), ((0, 3, 1, 2), (2, 3, 0, 1)), (1024, 256)),
        # a line of channels is not
        ((8, 64, 32, 2, 32, 2), PATCHES, (32, 64, 2, 1), ((1, 0, 2, 3), WRITTEN), (128, 256)),
    ],
)
def test_the_loop_that_continues_a_short_one_is_next_to_it(
    shape: tuple[int, ...], axes: tuple[int, ...], sizes: object, orders: object, reach: object
) -> None:
    found = cut(0, 0, permuted(shape, axes), 2, (16, 16))
    assert found is not None
    assert (found.tile.sizes, found.tile.orders, found.reach) == (sizes, orders, reach)


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((8, 3, 14, 16, 14, 16), PATCHES),
        ((8, 14, 14, 16, 16, 3), IMAGES),
        ((8, 4, 32, 2, 32, 2), PATCHES),
        ((8, 32, 32, 2, 2, 4), IMAGES),
    ],
)
def test_patches_and_images_are_moved_in_whole_sectors(
    shape: tuple[int, ...], axes: tuple[int, ...], itemsize: int
) -> None:
    """Of 32 bytes, whichever short loops a pixel's channels and a patch's rows are."""
    found = cut(0, 0, permuted(shape, axes), itemsize, (16, 16))
    assert found is not None
    for number in range(0, found.count, 1 + found.count // 16):
        for where, inside in positions(found.tile, list(found.words), number):
            sectors = np.unique(where[inside] * found.tile.unit // 32)
            assert 32 * sectors.size == inside.sum() * found.tile.unit


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((8, 16, 64, 8, 512, 8), PATCHES),
        ((8, 64, 512, 8, 8, 16), IMAGES),
        ((64, 120, 64, 120), (2, 0, 3, 1)),
        ((64, 31, 64, 31), (2, 0, 3, 1)),
    ],
)
def test_four_axes_are_no_more_than_a_tile(
    shape: tuple[int, ...], axes: tuple[int, ...], itemsize: int
) -> None:
    found = cut(0, 0, permuted(shape, axes), itemsize, (16, 16))
    assert found is not None
    assert TILE // 4 <= found.tile.nbytes <= TILE


def test_a_side_that_cannot_be_moved_in_vectors_makes_tiles_smaller() -> None:
    for loops in (((4089, 1, 16378), (8185, 4089, 2)), ((4089, 2, 8185), (8185, 8178, 1))):
        for itemsize, warps in ((1, WARPS), (4, MORE_WARPS)):
            apart = cut(0, 0, loops, itemsize, (16, 16))  # elements with gaps between them
            assert apart is not None
            assert (apart.tile.sizes, apart.tile.warps) == ((1, 128, 64, 1), warps)


def test_a_copy_that_has_others_beside_it_is_cut_in_smaller_tiles() -> None:
    found = [cut(0, 0, permuted((1024, n), (1, 0)), 8, (16, 16)) for n in (1016, 1024)]
    small, large = (one.tile for one in found if one is not None)
    assert (small.sizes, small.warps, small.nbytes) == ((1, 64, 32, 1), STRIP_WARPS, SMALL_TILE)
    assert (large.sizes, large.warps, large.nbytes) == ((1, 64, 64, 1), WARPS, TILE)


def test_a_few_columns_are_long_runs_on_both_sides() -> None:
    found = cut(0, 0, permuted((1 << 20, 3), (1, 0)), 4, (16, 16))
    assert found is not None
    assert (found.tile.sizes, found.tile.warps) == ((1, 256, 4, 1), STRIP_WARPS)
    assert found.reach == (4 * 3 * 256, 4 * 256)


def test_runs_of_any_length_share_one_kernel() -> None:
    found = [cut(0, 0, ((n, 1, 1),), 4, (16, 16)) for n in range(4, 2048, 4)]
    assert len({one.tile for one in found if one is not None}) == 1


def test_it_knows_the_first_byte_of_each_side_and_the_one_behind_the_last() -> None:
    found = cut(3, 5, ((4, 10, 100), (7, 1, -1)), 2, (2, 2))
    assert found is not None
    assert found.spans == ((2 * 3, 2 * (3 + 30 + 6 + 1)), (2 * (5 - 6), 2 * (5 + 300 + 1)))


def test_it_knows_how_far_a_tile_reaches_where_gaps_are_closed() -> None:
    found = cut(0, 0, ((1 << 16, 100, 6), (3, 10, 2), (2, 1, 1)), 4, (16, 16))
    assert found is not None
    assert found.tile.sizes == (128, 4, 1, 1)
    assert found.reach == (8, 128 * 3 * 8)


@pytest.mark.parametrize("aligned", [(1, 16), (2, 8), (16, 4)])
def test_vectors_are_no_wider_than_the_alignment(aligned: tuple[int, int]) -> None:
    found = cut(0, 0, ((1 << 20, 1, 1),), 1, aligned)
    assert found is not None
    assert found.tile.unit == min(aligned)
    assert all(v * found.tile.unit <= a for v, a in zip(found.tile.vectors, aligned, strict=True))


def test_no_access_is_wider_than_16_bytes() -> None:
    found = cut(0, 0, ((1 << 20, 1, 1),), 1, (64, 64))
    assert found is not None
    assert (found.tile.unit, found.tile.vectors) == (8, (2, 2))


def test_only_far_positions_take_64_bits() -> None:
    for n, wide in ((1 << 20, False), (1 << 28, True)):
        for loops in (((16, n, 1), (1 << 20, 1, 16)), ((16, n, 3), (3, 1, 1))):
            found = cut(0, 0, loops, 4, (16, 16))
            assert found is not None
            assert found.tile.wide is wide


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("beyond", [-2, -1, 1, 2])
def test_they_do_from_the_first_that_needs_them(beyond: int, direction: int) -> None:
    apart = (1 << 31) - 512 + beyond  # of two rows, of which a tile has 512 elements each
    found = cut(0, 0, ((2, direction * apart, 1), (1 << 20, 1, 2)), 4, (16, 16))
    assert found is not None
    assert found.tile.sizes == (1, 2, 512, 1)
    assert found.tile.wide is (beyond > 0)


def test_more_axes_or_tiles_than_are_counted_are_left_to_torch() -> None:
    gaps: tuple[Loop, ...] = tuple((3, 4 * 8**k, 5 * 8**k) for k in range(OUTER + 3))
    assert cut(0, 0, gaps[:-1], 1, (1, 1)) is not None
    assert cut(0, 0, gaps, 1, (1, 1)) is None
    assert cut(0, 0, ((1 << 46, 1, 1),), 1, (16, 16)) is None


@given(st.sampled_from(sorted(LARGE)), st.sampled_from([1, 2, 4, 8, 16]), st.data())
def test_a_tile_far_away_pairs_the_right_positions(
    name: str, itemsize: int, data: st.DataObject
) -> None:
    shape, axes = LARGE[name]
    shape = (shape[0] * data.draw(st.integers(1, 300)) + data.draw(st.integers(0, 9)), *shape[1:])
    loops = permuted(shape, axes)
    found = cut(0, 0, loops, itemsize, (16, 16))
    assert found is not None
    number = data.draw(st.integers(0, found.count - 1))
    (where, inside), (to, written) = positions(found.tile, list(found.words), number)
    where, inside = (turned(found.tile, x).reshape(to.shape) for x in (where, inside))
    assert (inside == written).all()
    unit = found.tile.unit
    assert (source_of(to[written] * unit, loops, itemsize) == where[written] * unit).all()


def source_of(byte: np.ndarray, loops: tuple[Loop, ...], itemsize: int) -> np.ndarray:
    """Where the bytes of a gap-free output come from, digit by digit."""
    rest, found = byte // itemsize, byte % itemsize
    for _, x, z in sorted(loops, key=lambda loop: -loop[2]):
        found = found + rest // z * x * itemsize
        rest = rest % z
    return found


@given(st.integers(0, (1 << 31) - 1), st.integers(1, (1 << 31) - 1))
def test_a_digit_divides(x: int, n: int) -> None:
    for divisor in (n, 1 + n % 1000, 1 << n % 31):
        count, magic = _digit(divisor)
        low, shift = magic & 0xFFFFFFFF, magic >> 32
        assert count == divisor
        assert magic < 1 << 63
        assert (x + (x * low >> 32)) >> shift == x // divisor
        assert x + (x * low >> 32) < 1 << 32
