"""The chunks of a tensor hold each of its elements once, and a region is found in few of them."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlayout.port.formats.base import Bounds, TensorSpec
from xlayout.port.formats.boxes import Boxed, meet
from xlayout.port.formats.dcp_metadata import (
    Chunk,
    Entry,
    Item,
    _refuse_cover,
    _WrongError,
    parse_metadata,
)
from xlayout.port.formats.dcp_metadata_write import render_metadata

SHAPE = (4, 5, 3)
boxes = st.tuples(
    *[
        st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True).map(sorted).map(tuple)
        for n in SHAPE
    ]
)


@given(st.lists(boxes, max_size=6), st.booleans())
def test_the_first_element_that_a_count_finds_is_named(chunks: list[Bounds], under: bool) -> None:
    chunks += [tuple((0, n) for n in SHAPE)] * under
    count = np.zeros(SHAPE, int)
    for box in chunks:
        count[tuple(slice(*ends) for ends in box)] += 1
    at = np.argwhere(count != 1)
    if not len(at):
        _refuse_cover(SHAPE, chunks)
        return
    text = f"its element at {at[0].tolist()} is in {count[tuple(at[0])]} chunks; wanted each"
    with pytest.raises(_WrongError, match=f"^{re.escape(text)}"):
        _refuse_cover(SHAPE, chunks)


@given(st.lists(st.integers(1, 9), min_size=1), st.lists(st.integers(1, 9), min_size=1))
def test_grids_cover_whatever_their_steps(rows: list[int], columns: list[int]) -> None:
    edges = [np.cumsum([0, *steps]).tolist() for steps in (rows, columns)]
    grid = [
        (row, column)
        for row in itertools.pairwise(edges[0])
        for column in itertools.pairwise(edges[1])
    ]
    _refuse_cover((sum(rows), sum(columns)), grid)
    with pytest.raises(_WrongError, match=r"at \[0, 0\] is in 0 chunks"):
        _refuse_cover((sum(rows), sum(columns)), grid[1:])


def test_walls_of_bricks_take_no_longer_than_rows() -> None:
    """No two bricks of one course make a box, so their pairs must not be tried."""
    width = 20_000
    bricks = [
        (ends, (column, column + 1))
        for column in range(width)
        for ends in ([(0, 2), (2, 4)] if column % 2 else [(0, 1), (1, 3), (3, 4)])
    ]
    _refuse_cover((4, width), bricks)
    with pytest.raises(_WrongError, match=re.escape("[1, 19998] is in 2 chunks")):
        _refuse_cover((4, width), [*bricks, ((1, 2), (width - 2, width - 1))])


def test_a_chunk_of_no_elements_may_take_no_bytes() -> None:
    raw = render_metadata(
        {"x": (TensorSpec("int8", (0, 3)), [Chunk(((0, 0), (0, 3)), Item("file", 0, 0))])}
    )
    found = parse_metadata(raw, where="here").tensors["x"]
    assert (found.spec.shape, found.chunks) == ((0, 3), ())


def test_a_tensor_is_cut_along_a_few_axes() -> None:
    halves = [((0, 1),) * 5, ((1, 2),) * 5]
    with pytest.raises(_WrongError, match=r"cut along axes \[0, 1, 2, 3, 4\]; wanted at most 4"):
        _refuse_cover((2,) * 5, halves)
    _refuse_cover((), [()])
    _refuse_cover((3, 0), [])
    with pytest.raises(_WrongError, match=re.escape("its element at [] is in 2 chunks")):
        _refuse_cover((), [(), ()])


def entry(edges: list[list[int]]) -> Entry:
    """A tensor in a grid of chunks."""
    grid = itertools.product(*map(itertools.pairwise, edges))
    chunks = [Chunk(box, Item("file", 0, 0)) for box in sorted(grid)]
    spec = TensorSpec("int8", tuple(cuts[-1] for cuts in edges))
    return Entry(spec, Boxed(chunks, len(edges)))


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), max_size=3), st.data())
def test_all_chunks_that_a_region_meets_are_found(
    steps: list[list[int]], data: st.DataObject
) -> None:
    tensor = entry([np.cumsum([0, *each]).tolist() for each in steps])
    box = tuple(
        tuple(sorted(data.draw(st.integers(0, n)) for _ in "ab")) for n in tensor.spec.shape
    )
    near = tensor.boxed.near(box)
    assert all(chunk in near for chunk in tensor.chunks if meet(box, chunk.box))


def test_a_region_is_not_looked_for_in_the_chunks_of_other_layers_and_experts() -> None:
    units, halves = list(range(41)), [0, 50, 100]
    tensor = entry([units, units, halves, [0, 64]])
    assert len(tensor.chunks) == 3200
    assert len(tensor.boxed.near(((7, 8), (3, 4), (0, 60), (0, 64)))) == 2
    assert len(tensor.boxed.near(((7, 9), (3, 4), (0, 60), (0, 64)))) == 160
    assert tensor.boxed.near(((7, 7), (3, 4), (0, 60), (0, 64))) == ()
