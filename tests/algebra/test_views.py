"""Views: the verdict is exact in both directions, for any memory strides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xlayout as xl
from tests.strategies import factorisations, layouts, memory_strides, several, shapes, strided
from tests.table import pairs
from xlayout.algebra import Layout, Piece
from xlayout.algebra.strided import row_major, strided_copies
from xlayout.errors import ShapeError


def addresses(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Where each element of an array lies, in row-major order: the definition of strides."""
    at = np.zeros((), dtype=np.int64)
    for n, step in zip(shape, strides, strict=True):
        at = at[..., None] + np.arange(n) * step
    return at.ravel()


def only_view(shape: tuple[int, ...], at: np.ndarray) -> tuple[int, tuple[int, ...]] | None:
    """The offset and strides that put every element at its address, if there are any."""
    at = at.reshape(shape)
    origin = (0,) * len(shape)
    steps = tuple(
        int(at[(*origin[:a], 1, *origin[a + 1 :])] - at[origin]) if n > 1 else 0
        for a, n in enumerate(shape)
    )
    offset = int(at[origin])
    fits = (addresses(shape, steps) + offset == at.ravel()).all()
    return (offset, steps) if fits else None


@given(layouts(), st.data())
def test_the_verdict_is_exact_for_any_strides(layout: Layout, data: st.DataObject) -> None:
    strides = data.draw(memory_strides(layout.in_shape))
    found = layout.as_view(strides)
    if layout.has_holes:
        assert found is None
        return
    read = addresses(layout.in_shape, strides)[layout.index()]
    wanted = only_view(layout.out_shape, read)
    if found is None:
        assert wanted is None
    else:
        offset, steps = found
        assert wanted is not None
        assert wanted[0] == offset
        significant = [
            (a, b) for a, b, n in zip(steps, wanted[1], layout.out_shape, strict=True) if n > 1
        ]
        assert all(a == b for a, b in significant)


@given(st.data())
def test_a_view_shows_the_elements_of_real_memory(data: st.DataObject) -> None:
    layout = data.draw(layouts(max_size=48))
    x = data.draw(strided(layout.in_shape))
    made = xl.apply(layout, x, copy=None, fill=-7)
    table = layout.index()
    assert made.ravel().tolist() == np.where(table < 0, -7, x.ravel()[table]).tolist()
    is_view = layout.as_view(tuple(s // x.itemsize for s in x.strides)) is not None
    assert np.shares_memory(made, x) == is_view


@given(shapes(), st.data())
def test_a_transpose_of_any_memory_is_a_view(shape: tuple[int, ...], data: st.DataObject) -> None:
    strides = data.draw(memory_strides(shape))
    axes = data.draw(st.permutations(range(len(shape))))
    found = Layout.permute(shape, axes).as_view(strides)
    assert found is not None
    offset, steps = found
    assert offset == 0
    assert all(steps[k] == strides[a] for k, a in enumerate(axes) if shape[a] > 1)


@given(layouts(), st.data())
def test_strides_of_axes_of_size_1_mean_nothing(layout: Layout, data: st.DataObject) -> None:
    strides = data.draw(memory_strides(layout.in_shape))
    odd = tuple(
        data.draw(st.integers(-99, 99)) if n == 1 else s
        for n, s in zip(layout.in_shape, strides, strict=True)
    )
    assert layout.as_view(odd) == layout.as_view(strides)


@given(several(max_size=30), st.data())
def test_strided_copies_move_every_element_to_its_address(
    layout: Layout, data: st.DataObject
) -> None:
    in_shape = data.draw(factorisations(layout.in_size))
    out_shape = data.draw(factorisations(layout.out_size))
    source, target = data.draw(memory_strides(in_shape)), data.draw(memory_strides(out_shape))
    copies = strided_copies(layout.pieces, in_shape, source, out_shape, target)
    moved = {pair for copy in copies for pair in pairs(*copy)}
    table = layout.index()
    read, written = addresses(in_shape, source), addresses(out_shape, target)
    assert moved == {(int(read[i]), int(written[o])) for o, i in enumerate(table) if i >= 0}


@pytest.mark.parametrize("rows", [2**3, 2**12, 2**30])
def test_rows_without_gaps_cut_nothing(rows: int) -> None:
    width, left = 64 * rows, 49 * rows + 1
    columns = Layout.parse(
        "((r a) + (r b)) -> (r (a + b))", None, r=rows, a=left, b=width - left
    ).pieces
    shape = (8 * rows, 8 * rows)
    assert len(strided_copies(columns, shape, row_major(shape))) == 2
    backwards = tuple(-step for step in row_major(shape))
    assert len(strided_copies(columns, shape, backwards, shape, backwards)) == 2


def test_several_arrays_are_no_one_view() -> None:
    layout = Layout.concat([(2,), (3,)])
    assert layout.as_view() is None
    assert layout.inverse().as_view() is None


def test_nothing_is_a_view_of_anything() -> None:
    assert Layout.permute((0, 3), (1, 0)).as_view((1, 0)) == (0, (0, 1))


def test_memory_may_end_within_the_last_step_of_a_view() -> None:
    rows = Layout(((5,),), ((2, 2),), (Piece(0, 0, ((2, 3, 2), (2, 1, 1))),))
    assert rows.as_view() == (0, (3, 1))


def test_a_repeat_is_a_view_with_stride_0() -> None:
    rows = Layout(((3,),), ((2, 3),), (Piece(0, 0, ((2, 0, 3), (3, 1, 1))),))
    assert rows.as_view() == (0, (0, 1))


def test_wrong_strides_are_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"strides: \(1,\) has 1 entries, the input \(2, 3\) has 2"
    ):
        Layout.identity((2, 3)).as_view((1,))


def test_a_view_by_the_strides_of_numpy_is_of_our_ints() -> None:
    found = Layout.permute((2, 3), (1, 0)).as_view(tuple(np.array([3, -1])))
    assert repr(found) == "(0, (-1, 3))"
