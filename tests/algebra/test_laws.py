"""The laws of layouts, each against the table `index()` or the definition of a piece."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.strategies import (
    bijections,
    factorisations,
    layouts,
    permutes,
    recut,
    several,
    shapes,
    steps,
    sums,
)
from tests.table import pairs
from xlayout.algebra import Layout, Piece

sizes = st.sampled_from([1, 6, 12, 24, 36, 60])


def follow(table: np.ndarray, then: np.ndarray) -> np.ndarray:
    """`table` read at the positions `then`; holes stay holes."""
    found = np.full(then.shape, -1)
    found[then >= 0] = table[then[then >= 0]]
    return found


# -- what a layout means ---------------------------------------------------------------------------


@given(several())
def test_index_is_the_definition_of_a_piece(layout: Layout) -> None:
    table = [-1] * layout.out_size
    for piece in layout.pieces:
        for i, o in pairs(piece.in_offset, piece.out_offset, piece.loops):
            assert table[o] == -1, "an output written twice"
            table[o] = i
    assert layout.index().tolist() == table


@given(shapes(), st.data())
def test_permute_is_numpys_transpose(shape: tuple[int, ...], data: st.DataObject) -> None:
    axes = data.draw(st.permutations(range(len(shape))))
    layout, x = Layout.permute(shape, axes), np.arange(math.prod(shape)).reshape(shape)
    assert layout.out_shape == x.transpose(axes).shape
    assert layout.index().tolist() == x.transpose(axes).ravel().tolist()


@given(shapes(min_axes=1), st.data())
def test_slice_pad_and_concat_are_numpys(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = np.arange(math.prod(shape)).reshape(shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, shape[axis])] * 2)))
    kept = x[(slice(None),) * (axis % len(shape)) + (slice(first, last),)]
    assert Layout.slice(shape, first, last, axis).index().tolist() == kept.ravel().tolist()
    assert Layout.slice(shape, first, last, axis).out_shape == kept.shape

    longer = data.draw(st.integers(shape[axis], shape[axis] + 5))
    width = [(0, longer - n if a == axis % len(shape) else 0) for a, n in enumerate(shape)]
    padded = np.pad(x, width, constant_values=-1)
    assert Layout.pad(shape, longer, axis).index().tolist() == padded.ravel().tolist()

    parts = np.split(x, [first, last], axis)
    flat = np.concatenate([p.ravel() for p in parts])
    table = Layout.concat([p.shape for p in parts], axis).index()
    assert flat[table].tolist() == x.ravel().tolist()


# -- normal form, equality and hash ----------------------------------------------------------------


@given(st.data(), sizes)
def test_a_piece_does_not_depend_on_how_its_loops_are_written(data: st.DataObject, n: int) -> None:
    for piece in data.draw(bijections(n)).pieces:
        loops: list[tuple[int, int, int]] = []
        for count, x, z in piece.loops:
            inner = 1
            for factor in data.draw(factorisations(count)):
                loops.append((factor, x * inner, z * inner))
                inner *= factor
        shuffled = tuple(data.draw(st.permutations(loops)))
        assert Piece(piece.in_offset, piece.out_offset, shuffled) == piece


@pytest.mark.parametrize("n", [12, 24, 30, 36])
def test_the_normal_form_of_one_piece_is_unique(n: int) -> None:
    def splits(n: int) -> list[tuple[int, ...]]:
        smaller = [(d, *rest) for d in range(2, n) if n % d == 0 for rest in splits(n // d)]
        return [(n,), *smaller]

    forms: dict[bytes, set[tuple[Piece, ...]]] = {}
    for split in splits(n):
        for axes in itertools.permutations(range(len(split))):
            layout = Layout.permute(split, axes)
            forms.setdefault(layout.index().tobytes(), set()).add(layout.pieces)
    assert len(forms) >= 10
    assert {len(found) for found in forms.values()} == {1}
    assert len({next(iter(found)) for found in forms.values()}) == len(forms)


@given(several(), st.data())
def test_equality_and_hash_do_not_depend_on_the_form(layout: Layout, data: st.DataObject) -> None:
    other = Layout(layout.in_shapes, layout.out_shapes, data.draw(recut(layout)))
    assert other == layout
    assert hash(other) == hash(layout)


@given(st.data(), sizes)
def test_layouts_are_equal_exactly_when_their_tables_are(data: st.DataObject, n: int) -> None:
    a = data.draw(bijections(n)).regrouped([(n,)], [(n,)])
    b = data.draw(st.one_of(bijections(n), sums(n), permutes(n))).regrouped([(n,)], [(n,)])
    same = a.index().tolist() == b.index().tolist()
    assert (a == b) == same
    assert (hash(a) == hash(b)) == same


@given(several(max_size=48), several(max_size=48))
def test_layouts_of_other_shapes_differ(a: Layout, b: Layout) -> None:
    assume((a.in_shapes, a.out_shapes) != (b.in_shapes, b.out_shapes))
    assert a != b
    assert hash(a) != hash(b)


def test_a_layout_is_not_equal_to_another_kind_of_value() -> None:
    assert Layout.identity((2, 3)) != "a=2 b=3 -> a b"
    with pytest.raises(TypeError, match="unsupported operand"):
        Layout.identity((2, 3)) >> "a=2 b=3 -> a b"


@given(several(), st.data())
def test_merging_keeps_the_map_and_never_makes_it_longer(
    layout: Layout, data: st.DataObject
) -> None:
    cut = data.draw(recut(layout))
    merged = Layout(layout.in_shapes, layout.out_shapes, cut)
    assert merged.index().tolist() == layout.index().tolist()
    assert len(merged.pieces) <= len(cut)


@given(st.data(), sizes)
def test_merging_puts_one_cut_loop_back_together(data: st.DataObject, n: int) -> None:
    layout = data.draw(permutes(n))
    for piece in layout.pieces:
        for number, (count, x, z) in enumerate(piece.loops):
            rest = piece.loops[:number] + piece.loops[number + 1 :]
            at = data.draw(st.integers(1, count - 1))
            low = Piece(0, 0, (*rest, (at, x, z)))
            high = Piece(at * x, at * z, (*rest, (count - at, x, z)))
            assert Layout(layout.in_shapes, layout.out_shapes, (high, low)).pieces == layout.pieces


@given(several(), st.data())
def test_pieces_come_sorted_by_output(layout: Layout, data: st.DataObject) -> None:
    pieces = Layout(layout.in_shapes, layout.out_shapes, data.draw(recut(layout))).pieces
    assert [p.out_offset for p in pieces] == sorted(p.out_offset for p in pieces)


# -- inverse ---------------------------------------------------------------------------------------


@given(st.data(), sizes)
def test_the_inverse_undoes_both_ways(data: st.DataObject, n: int) -> None:
    layout = data.draw(bijections(n))
    back = layout.inverse()
    assert layout.is_bijection
    assert (layout >> back).is_identity
    assert (back >> layout).is_identity
    assert layout.index()[back.index()].tolist() == list(range(n))
    assert back.inverse() == layout


@given(several(repeats=False))
def test_the_inverse_swaps_every_pair(layout: Layout) -> None:
    table = layout.index()
    swapped = np.full(layout.in_size, -1)
    swapped[table[table >= 0]] = np.flatnonzero(table >= 0)
    back = layout.inverse()
    assert (back.in_shapes, back.out_shapes) == (layout.out_shapes, layout.in_shapes)
    assert back.index().tolist() == swapped.tolist()


# -- composition -----------------------------------------------------------------------------------


@given(layouts(), st.data())
def test_composing_equals_doing_both(first: Layout, data: st.DataObject) -> None:
    then = data.draw(steps(first.out_shape, 96))
    both = first >> then
    assert (both.in_shapes, both.out_shapes) == (first.in_shapes, then.out_shapes)
    assert both.index().tolist() == follow(first.index(), then.index()).tolist()


@given(st.data(), sizes)
def test_composing_any_two_factorisations_is_exact(data: st.DataObject, n: int) -> None:
    first, then = data.draw(bijections(n)), data.draw(bijections(n))
    assert (first >> then).index().tolist() == first.index()[then.index()].tolist()


@given(layouts(max_size=60), st.data())
def test_composition_is_associative_and_hashes_the_same(a: Layout, data: st.DataObject) -> None:
    b = data.draw(steps(a.out_shape, 60))
    c = data.draw(steps(b.out_shape, 60))
    left, right = (a >> b) >> c, a >> (b >> c)
    assert left == right
    assert hash(left) == hash(right)


@given(several())
def test_the_identity_changes_nothing(layout: Layout) -> None:
    before = Layout.identity(layout.in_size).regrouped(layout.in_shapes, layout.in_shapes)
    after = Layout.identity(layout.out_size).regrouped(layout.out_shapes, layout.out_shapes)
    assert before.is_identity
    assert before >> layout == layout == layout >> after


@given(layouts(max_size=60, repeats=False), st.data())
def test_the_inverse_of_a_chain_is_the_chain_of_inverses(a: Layout, data: st.DataObject) -> None:
    b = data.draw(steps(a.out_shape, 60, repeats=False))
    assert (a >> b).inverse() == b.inverse() >> a.inverse()


@pytest.mark.parametrize("n", [64, 128, 4096])
def test_two_way_swaps_of_a_prime_power_compose_to_one_piece(n: int) -> None:
    swaps = [Layout.permute((d, n // d), (1, 0)) for d in range(1, n) if n % d == 0]
    flat = [swap.regrouped([(n,)], [(n,)]) for swap in swaps]
    assert {len((a >> b).pieces) for a in flat for b in flat} == {1}
