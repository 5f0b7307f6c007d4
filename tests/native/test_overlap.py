"""Arrays that are judged separate share no byte; rows and columns of one matrix are told apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xlayout_native.overlap import Extent, extent, may_meet, meets, meets_itself

MEMORY = np.zeros(1 << 12, np.uint8)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Up to three axes with positive, negative or zero strides, anywhere in `MEMORY`."""
    dtype = np.dtype(draw(st.sampled_from(("u1", "<u2", "<u4", "S3"))))
    axes = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(-40, 40)), max_size=3))
    shape, strides = [n for n, _ in axes], [step for _, step in axes]
    at = draw(st.integers(1 << 11, (1 << 11) + 64))
    return np.ndarray(shape, dtype, MEMORY, at, strides)


def extent_of(x: np.ndarray) -> Extent:
    return extent(x.__array_interface__["data"][0], x.shape, x.strides, x.itemsize)


def bytes_of(x: np.ndarray) -> list[int]:
    """The position of every byte of every element."""
    starts = np.zeros(x.shape, np.int64)
    for axis, (n, step) in enumerate(zip(x.shape, x.strides, strict=True)):
        starts += (np.arange(n) * step).reshape(n, *[1] * (x.ndim - axis - 1))
    first = x.__array_interface__["data"][0]
    return (first + starts.reshape(-1, 1) + np.arange(x.itemsize)).reshape(-1).tolist()


@given(arrays(), arrays())
def test_what_is_told_apart_shares_no_byte(x: np.ndarray, z: np.ndarray) -> None:
    if not may_meet(extent_of(x), extent_of(z)):
        assert set(bytes_of(x)).isdisjoint(bytes_of(z))


@given(arrays())
def test_what_does_not_meet_itself_has_every_byte_once(x: np.ndarray) -> None:
    if not meets_itself(extent_of(x)):
        assert len(set(bytes_of(x))) == len(bytes_of(x))


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9), st.integers(0, 5), st.booleans())
def test_columns_and_steps_of_one_matrix_are_told_apart(
    rows: int, left: int, right: int, between: int, backwards: bool
) -> None:
    whole = np.zeros((rows, left + between + right), np.float32)
    halves = whole[:, :left], whole[:: -1 if backwards else 1, left + between :]
    steps = whole[::2], whole[1::2]
    for x, z in (halves, halves[::-1], steps, (halves[0], halves[1].T)):
        assert not may_meet(extent_of(x), extent_of(z))
        assert not meets_itself(extent_of(x))


@given(st.integers(2, 6), st.integers(2, 9), st.integers(1, 8))
def test_columns_that_share_one_are_not(rows: int, columns: int, shared: int) -> None:
    shared = min(shared, columns - 1)
    whole = np.zeros((rows, 2 * columns - shared), np.float32)
    assert may_meet(extent_of(whole[:, :columns]), extent_of(whole[:, -columns:]))
    assert meets_itself(extent_of(np.lib.stride_tricks.sliding_window_view(whole, 2, axis=1)))


def test_an_array_without_elements_meets_nothing() -> None:
    x = np.zeros((3, 0), np.float32)
    assert not may_meet(extent_of(x), extent_of(x))
    assert not meets_itself(extent_of(x))


RUNS = st.tuples(st.integers(0, 600), st.integers(1, 3))


@given(st.lists(RUNS, max_size=5) | st.lists(RUNS, min_size=17, max_size=24), st.data())
def test_results_that_are_told_apart_share_no_byte_with_anything(
    runs: list[tuple[int, int]], data: st.DataObject
) -> None:
    """However many there are; inputs may lie on one another."""
    inputs = data.draw(st.integers(0, len(runs)))
    bytes_of_each = [set(range(first, first + size)) for first, size in runs]
    apart = all(
        mine.isdisjoint(other)
        for k, mine in enumerate(bytes_of_each[inputs:], inputs)
        for other in bytes_of_each[:k]
    )
    addresses, nbytes = [first for first, _ in runs], [size for _, size in runs]
    assert meets(addresses, nbytes, inputs) is not apart
