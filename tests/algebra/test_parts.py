"""The laws of lifting, of the parts of a layout, and of the kinds of map it can be."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import (
    layouts,
    several,
    shapes,
    steps,
)
from xlayout.algebra import Layout, Piece

sizes = st.sampled_from([1, 6, 12, 24, 36, 60])


@given(several(max_size=24), st.lists(st.integers(1, 3), max_size=2), st.integers(1, 3))
def test_lifting_repeats_the_layout_around_its_axes(
    layout: Layout, before: list[int], after: int
) -> None:
    lifted = layout.lift(before, after)
    assert lifted.in_shapes == tuple((*before, *s, after) for s in layout.in_shapes)
    assert lifted.out_shapes == tuple((*before, *s, after) for s in layout.out_shapes)
    whole = np.arange(lifted.in_size)
    ends = np.cumsum([math.prod(s) for s in lifted.in_shapes])[:-1]
    rows = [part.reshape(math.prod(before), -1, after) for part in np.split(whole, ends)]
    made = np.full((math.prod(before), layout.out_size, after), -1)
    table = layout.index()
    made[:, table >= 0] = np.concatenate(rows, axis=1)[:, table[table >= 0]]
    ends = np.cumsum([math.prod(s) for s in layout.out_shapes])[:-1]
    flat = [part.ravel() for part in np.split(made, ends, axis=1)]
    assert lifted.index().tolist() == np.concatenate(flat).tolist()


@given(layouts(max_size=24), shapes(4, max_axes=2), shapes(4, max_axes=2))
def test_lifting_twice_is_lifting_once(
    layout: Layout, inner: tuple[int, ...], outer: tuple[int, ...]
) -> None:
    assert layout.lift(inner, inner).lift(outer, outer) == layout.lift(
        (*outer, *inner), (*inner, *outer)
    )


@given(layouts(max_size=24), st.data())
def test_lifting_follows_composition(a: Layout, data: st.DataObject) -> None:
    b = data.draw(steps(a.out_shape, 24))
    assert (a >> b).lift((2,), (3,)) == a.lift((2,), (3,)) >> b.lift((2,), (3,))


@given(several())
def test_the_outputs_apart_are_the_outputs_together(layout: Layout) -> None:
    parts = [layout.only(k) for k in range(len(layout.out_shapes))]
    assert layout.each() == parts
    tables = [part.index() for part in parts]
    assert reduce(lambda a, b: [*a, *b], tables, []) == layout.index().tolist()


@given(several(), st.data())
def test_a_block_is_the_table_of_its_rows_and_columns(layout: Layout, data: st.DataObject) -> None:
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, layout.in_size)] * 2)))
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, layout.out_size)] * 2)))
    block = Layout(((high - low,),), ((last - first,),), layout.between((low, high), (first, last)))
    rows = layout.index()[first:last]
    assert (
        block.index().tolist() == np.where((rows >= low) & (rows < high), rows - low, -1).tolist()
    )


@given(several())
@example(Layout([(2,)], [(2,)], [Piece(0, 0, ((2, 0, 1),))]))  # one element twice, the other never
def test_what_kind_of_map_it_is(layout: Layout) -> None:
    table = layout.index()
    kept = table[table >= 0]
    assert layout.size == kept.size
    assert layout.has_holes == (kept.size < table.size)
    once = len(set(kept.tolist())) == kept.size
    assert layout.is_bijection == (once and kept.size == table.size == layout.in_size)
    assert layout.is_identity == (table.tolist() == list(range(layout.in_size)))
