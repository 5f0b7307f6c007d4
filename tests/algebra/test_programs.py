"""Programs: the steps of a layout, run by plain numpy, give the index table of the layout."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import xlayout as xl
from tests.strategies import (
    bijections,
    factorisations,
    layouts,
    patchworks,
    several,
    shapes,
    sums,
)
from tests.table import UNCUT
from xlayout.algebra import Layout, Piece
from xlayout.algebra.assemble import build
from xlayout.algebra.program import Program


def run(program: Program, arrays: list[np.ndarray], tables: list[np.ndarray]) -> list[np.ndarray]:
    """The meaning of every verb, in numpy; holes are -1."""
    flat = np.concatenate([*(a.ravel() for a in arrays), [-1]])
    values = list(arrays)
    for verb, sources, argument in program.steps:
        xs = [values[s] for s in sources]
        match verb:
            case "reshape":
                values.append(xs[0].reshape(argument))
            case "permute":
                values.append(xs[0].transpose(argument))
            case "slice":
                axis, start, stop, step = argument
                assert 0 <= start <= stop <= xs[0].shape[axis]
                values.append(xs[0][(slice(None),) * axis + (slice(start, stop, step),)])
            case "concatenate":
                values.append(np.concatenate(xs, argument[0]))
            case "expand":
                values.append(np.broadcast_to(xs[0], argument))
            case "full":
                values.append(np.full(argument, -1))
            case "gather":
                values.append(flat[tables[argument[0]]])
            case _:
                raise AssertionError(verb)
    return [values[k] for k in program.outputs]


def check(layout: Layout) -> Program:
    """The program of a layout, after a check that it does what the layout says."""
    program = build(layout.in_shapes, layout.out_shapes, layout.pieces)
    arrays = np.split(np.arange(layout.in_size), _starts(layout.in_shapes))
    tables = np.split(layout.index(), _starts(layout.out_shapes))
    tables = [t.reshape(s) for t, s in zip(tables, layout.out_shapes, strict=True)]
    made = run(
        program, [a.reshape(s) for a, s in zip(arrays, layout.in_shapes, strict=True)], tables
    )
    for found, table in zip(made, tables, strict=True):
        assert found.shape == table.shape
        assert found.tolist() == table.tolist()
    return program


def _starts(shapes_: tuple[tuple[int, ...], ...]) -> list[int]:
    return [int(n) for n in np.cumsum([math.prod(s) for s in shapes_])[:-1]]


def verbs(program: Program) -> list[str]:
    return [verb for verb, _, _ in program.steps]


@given(several())
def test_a_program_does_what_its_layout_says(layout: Layout) -> None:
    check(layout)


@given(layouts(max_size=72))
def test_a_program_of_one_array_does_what_its_layout_says(layout: Layout) -> None:
    check(layout)


UNEVEN = Layout(  # two pieces with the same period, the shorter of which leaves holes
    [(7, 2)], [(2, 3, 2)], [Piece(13, 2, ((4, 0, 3),)), Piece(2, 6, ((2, 8, 3),))]
)


@given(patchworks())
@example(UNEVEN)
def test_a_program_of_any_pieces_does_what_its_layout_says(layout: Layout) -> None:
    check(layout)


@given(st.data(), st.sampled_from([6, 24, 60]))
def test_one_piece_is_at_most_reshape_permute_reshape(data: st.DataObject, n: int) -> None:
    split = data.draw(factorisations(n))
    axes = data.draw(st.permutations(range(len(split))))
    layout = Layout.permute(split, axes).regrouped(
        [data.draw(factorisations(n))], [data.draw(factorisations(n))]
    )
    program = check(layout)
    assert verbs(program) in (
        [],
        ["reshape"],
        ["permute"],
        ["reshape", "permute"],
        ["permute", "reshape"],
        ["reshape", "permute", "reshape"],
    )


@given(st.data(), st.sampled_from([6, 24]))
def test_the_identity_takes_no_step_but_a_reshape(data: st.DataObject, n: int) -> None:
    layout = data.draw(bijections(n))
    same = layout >> layout.inverse()
    assert verbs(check(same)) == []
    other = same.regrouped(out_shapes=[data.draw(factorisations(n))])
    assert verbs(check(other)) in ([], ["reshape"])


# -- when a table is needed ------------------------------------------------------------------------


@st.composite
def around(draw: st.DrawFn, n: int) -> tuple[tuple[int, ...], int]:
    """A shape with an axis of size `n` somewhere, and that axis, counted from either end."""
    before, after = draw(shapes(8, max_axes=2)), draw(shapes(8, max_axes=2))
    axis = draw(st.sampled_from([len(before), -1 - len(after)]))
    return (*before, n, *after), axis


@st.composite
def named_ops(draw: st.DrawFn) -> Layout:
    """The layout of any named op, with any options that fit."""
    a, b, c, d = (draw(st.integers(1, 4)) for _ in range(4))
    kind = draw(st.sampled_from(["glu", "rope", "qkv", "regroup", "pad", "stack", "axes", "tiles"]))
    if kind == "glu":
        shape, axis = draw(around(a * b * c))
        op = draw(st.sampled_from([xl.interleave, xl.deinterleave]))
        return op.layout(shape, groups=a, block=b, axis=axis)
    if kind == "rope":
        shape, axis = draw(around(2 * a * b))
        op = draw(st.sampled_from([xl.rope_halves, xl.rope_pairs]))
        return op.layout(shape, heads=a, axis=axis)
    if kind == "qkv":
        order = draw(st.sampled_from(["concat", "per_head", "grouped", "codegen"]))
        kv_heads = {"per_head": a * b, "codegen": a}.get(order, b)
        shape, axis = draw(around((a * b + 2 * kv_heads) * c))
        options = {"heads": a * b, "kv_heads": kv_heads, "order": order, "blocks": a, "axis": axis}
        split = xl.split_qkv.layout(shape, **options)
        return split if draw(st.booleans()) else xl.fuse_qkv.layout(*split.out_shapes, **options)
    if kind == "regroup":
        sizes = [a * draw(st.integers(0, 3)) for _ in range(b)]
        shape, axis = draw(around(sum(sizes)))
        op = draw(st.sampled_from([xl.regroup, xl.ungroup]))
        return op.layout(shape, sizes=sizes, groups=a, axis=axis)
    if kind == "pad":
        shape, axis = draw(around(a))
        longer = xl.pad.layout(shape, to=a + b - 1, axis=axis)
        return draw(
            st.sampled_from([longer, longer.inverse(), xl.trim.layout(shape, to=a - 1, axis=axis)])
        )
    if kind == "stack":
        shape, axis = draw(around(a))
        return draw(
            st.sampled_from(
                [xl.unstack.layout(shape, axis=axis), xl.stack.layout([shape] * b, axis=axis)]
            )
        )
    if kind == "axes":
        axes = draw(st.permutations(range(4)))
        return draw(
            st.sampled_from(
                [
                    xl.matrix_transpose.layout((a, b, c, d)),
                    xl.permute_dims.layout((a, b, c, d), axes),
                ]
            )
        )
    rule = draw(st.sampled_from(["balanced", "ceil", "back", "last"]))
    shape = (*draw(shapes(4, max_axes=1)), a + c, b + d)
    tiles = xl.to_tiles.layout(shape, grid=(a, b), rule=rule)
    return draw(st.sampled_from([tiles, tiles.inverse()]))


@settings(max_examples=4 * settings().max_examples)
@given(named_ops())
def test_no_named_op_needs_a_table(layout: Layout) -> None:
    assert not check(layout).gathers


@given(st.sampled_from([12, 24, 30, 36, 60]).flatmap(sums))
def test_no_pattern_of_segments_needs_a_table(layout: Layout) -> None:
    assert not check(layout).gathers


@given(st.lists(st.integers(1, 4), min_size=2, max_size=8), st.data())
@example([4, 4, 1, 2, 2], [3, 2, 0, 4, 1])  # overlapping steps are no loop
def test_no_order_of_segments_needs_a_table(sizes: list[int], data: Any) -> None:
    order = data if isinstance(data, list) else data.draw(st.permutations(range(len(sizes))))
    left, right = (" + ".join(f"s{k}" for k in ks) for ks in (range(len(sizes)), order))
    named = {f"s{k}": n for k, n in enumerate(sizes)}
    assert not check(Layout.parse(f"({left}) -> ({right})", None, **named)).gathers
    by_group = Layout.parse(f"(g ({left})) -> (g ({right}))", None, g=3, **named)
    assert not check(by_group).gathers
    assert not check(by_group.lift((2,), (2,))).gathers


def test_what_resists_the_cuts_is_one_gather() -> None:
    assert verbs(check(UNCUT)) == ["gather"]
    assert UNCUT.cost(1).lowering == "gather"


def test_a_table_in_hundreds_of_pieces_is_one_gather() -> None:
    order = random.Random(0).sample(range(300), 300)
    table = Layout([(300,)], [(300,)], [Piece(i, k) for k, i in enumerate(order)])
    assert len(table.pieces) > 100
    assert verbs(check(table)) == ["gather"]
    assert not check(table.lift(after=(512,))).gathers  # each of these rows is worth its steps


def test_what_would_be_concatenated_again_and_again_is_one_gather() -> None:
    order = random.Random(1).sample(range(100), 100)
    pieces = [Piece(256 * i, 256 * k, ((256, 1, 1),)) for k, i in enumerate(order)]
    blocks = Layout([(25600,)], [(25600,)], pieces)
    assert verbs(check(blocks)) == ["gather"]
    assert blocks.cost(1).lowering == "gather"
