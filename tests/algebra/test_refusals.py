"""Refusals: what is not a layout is refused with a message that says what would be one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from xlayout import stack
from xlayout.algebra import Layout, Piece, partition
from xlayout.errors import (
    AxisError,
    CompositionError,
    InverseError,
    LayoutError,
    PatternError,
    ShapeError,
    SizeError,
)

SIX = ((6,),)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((-1, 0), r"piece: offsets -1, 0; both must be at least 0"),
        ((0, -2), r"piece: offsets 0, -2; both must be at least 0"),
        ((0, 0, ((-2, 1, 1),)), r"piece: loop \(-2, 1, 1\); wanted \(n >= 0, in_stride >= 0"),
        ((0, 0, ((2, -1, 1),)), r"piece: loop \(2, -1, 1\); wanted"),
        ((0, 0, ((2, 1, 0),)), r"piece: loop \(2, 1, 0\); wanted .*out_stride >= 1"),
        ((0, 0, ((3, 1, 2), (3, 9, 3))), r"overlap on one side; split the piece"),
        ((0, 0, ((3, 2, 1), (3, 3, 9))), r"overlap on one side; split the piece"),
        ((0, 0, ((2, 1, 1), (2, 1, 2))), r"overlap on one side; split the piece"),
    ],
)
def test_a_piece_is_refused(args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SizeError, match=message):
        Piece(*args)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ((Piece(0, 0, ((7, 1, 1),)),), r"pieces: .* ends at 7 -> 7, outside .* of 6 -> 6"),
        ((Piece(1, 0, ((6, 1, 1),)),), r"pieces: .* ends at 7 -> 6, outside"),
        ((Piece(0, 6),), r"pieces: .* ends at 1 -> 7, outside"),
        ((Piece(0, 0), Piece(1, 0)), r"write the same output position; make them disjoint"),
        (
            (Piece(0, 0, ((3, 1, 2),)), Piece(3, 1, ((2, 1, 3),))),
            r"write the same output position",
        ),
        (
            (Piece(0, 0, ((2, 2, 2),)), Piece(2, 2, ((4, 1, 1),))),  # as many as the identity
            r"write the same output position",
        ),
    ],
)
def test_pieces_that_make_no_layout_are_refused(pieces: tuple[Piece, ...], message: str) -> None:
    with pytest.raises(SizeError, match=message):
        Layout(SIX, SIX, pieces)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((0.0, 0), "in_offset: 0.0 is a float; wanted an int"),
        ((0, False), "out_offset: False is a bool; wanted an int"),
        ((0, 0, ((2, 1.0, 2),)), "loops: 1.0 is a float; wanted an int"),
        ((0, 0, (("a", 1, 1),)), "loops: 'a' is a str; wanted an int"),
        ((0, 0, ((2, 1),)), r"loops: \(\(2, 1\),\); wanted \(n, in_stride, out_stride\) for each"),
        ((0, 0, 3), r"loops: 3; wanted \(n, in_stride, out_stride\) for each"),
    ],
)
def test_a_piece_is_of_ints(args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}$"):
        Piece(*args)


def test_the_numbers_of_a_piece_are_our_own() -> None:
    piece = Piece(np.int64(3), np.int8(1), [[np.int64(2), np.int64(1), np.int64(4)]])  # type: ignore[arg-type]
    assert repr(piece) == "Piece(in_offset=3, out_offset=1, loops=((2, 1, 4),))"
    assert hash(piece) == hash(Piece(3, 1, ((2, 1, 4),)))


def test_what_is_no_piece_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^pieces: \(0, 0, \(\)\) is a tuple; wanted a Piece$"):
        Layout(SIX, SIX, ((0, 0, ()),))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^pieces: None; wanted a sequence of pieces$"):
        Layout(SIX, SIX, None)  # type: ignore[arg-type]


def test_pieces_may_come_from_an_iterator() -> None:
    whole = Layout.identity(6)
    assert Layout(SIX, SIX, iter(whole.pieces)) == whole  # type: ignore[arg-type]


LONG = "1" * 5000


@pytest.mark.parametrize(
    "text",
    [f"a={LONG} -> a", f"({LONG},) -> (3,) {{}}", f"(3,) -> (3,) {{0<-{LONG}: (3, 1, 1)}}"],
    ids=["size", "shape", "offset"],
)
def test_a_number_too_long_for_python_is_refused(text: str) -> None:
    with pytest.raises(PatternError, match=r"has 5000 digits; wanted at most 1000|cannot read"):
        Layout.parse(text)


def test_a_refusal_comes_soon_whatever_the_size() -> None:
    many = 10**18 + 1
    with pytest.raises(SizeError, match=rf"that would: 1, 101, .*, {many}$"):
        partition(many, 3, rule="even")
    with pytest.raises(PatternError, match=rf"does not divide by 7; it does by 1, .*, {many}\n"):
        Layout.parse("(a b) -> (b a)", (many,), a=7)


def test_a_pattern_of_too_many_pieces_is_refused_before_they_are_made() -> None:
    text = " ".join(f"(a{k} + b{k})" for k in range(40))
    with pytest.raises(PatternError, match=f"make {2**40} pieces, the limit is 4096") as caught:
        Layout.parse(f"c {text} -> c {text}", (1,) + (2,) * 40, **{f"a{k}": 1 for k in range(40)})
    assert str(caught.value).endswith("\n    ^")


def test_the_integers_of_numpy_are_as_good_as_ours() -> None:
    numbers = (2**20, 5, 1), (3, 2**40, 2**30)
    ours, theirs = (
        Layout(
            ((2**80,),),
            ((2**80,),),
            (Piece(kind(5), kind(7), tuple(tuple(map(kind, loop)) for loop in numbers)),),
        )
        for kind in (int, np.int64)
    )
    assert (hash(ours), repr(ours)) == (hash(theirs), repr(theirs))
    assert ours == theirs


def test_a_cost_wants_bytes() -> None:
    for itemsize, error in ((0, SizeError), (-2, SizeError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match=r"^itemsize: "):
            Layout.identity(6).cost(itemsize)


def test_an_axis_is_no_truth() -> None:
    with pytest.raises(TypeError, match=r"^axis: True is a bool; wanted an int"):
        Layout.concat([(2, 2)], axis=True)


ONE: Any = Layout.identity((6,))
SET: Any = {1, 0}


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: Layout.concat(None), TypeError, "shapes: None; wanted a sequence of shapes"),  # type: ignore[arg-type]
        (lambda: Layout.concat(["ab"]), TypeError, "shapes: 'ab'; wanted a sequence of ints"),  # type: ignore[list-item]
        (lambda: Layout(3, SIX, ()), TypeError, "in_shapes: 3; wanted a sequence of shapes"),  # type: ignore[arg-type]
        (lambda: Layout.permute((2, 3), SET), TypeError, "axes: {0, 1}; wanted a sequence of ints"),
        (lambda: Layout.concat(SET), TypeError, "shapes: {0, 1}; wanted a sequence of shapes"),
        (lambda: ONE.regrouped(None, 6), TypeError, "out_shapes: 6; wanted a sequence of shapes"),
        (lambda: ONE.only(1), SizeError, "output: 1; the layout makes 1, from 0"),
        (lambda: ONE.only(True), TypeError, "output: True is a bool; wanted an int"),
        (lambda: ONE.only(0.0), TypeError, "output: 0.0 is a float; wanted an int"),  # type: ignore[arg-type]
        (lambda: ONE.as_view(3), TypeError, "strides: 3; wanted a sequence of ints"),
        (lambda: ONE.as_view("a"), TypeError, "strides: 'a'; wanted a sequence of ints"),
        (lambda: ONE.as_view({1}), TypeError, "strides: {1}; wanted a sequence of ints"),
        (lambda: ONE.as_view((1.5,)), TypeError, "strides: (1.5,); wanted a sequence of ints"),
    ],
)
def test_what_a_method_cannot_take_is_refused_by_name(
    call: Callable[[], object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=f"^{re.escape(text)}$"):
        call()


def test_what_is_too_deep_to_read_is_refused() -> None:
    deep = "(" * 33 + "a" + ")" * 33 + " -> a"
    with pytest.raises(PatternError, match="parentheses inside 32 others; flatten it"):
        Layout.parse(deep, (2,))
    assert Layout.parse(deep[1:].replace(") ->", " ->", 1), (2,)).is_identity
    with pytest.raises(LayoutError, match="from_json: not a layout"):
        Layout.from_json("[" * 100_000)


def test_pieces_may_read_one_input_twice() -> None:
    assert Layout(SIX, ((2,),), (Piece(1, 0), Piece(1, 1))).index().tolist() == [1, 1]


TWICE = Layout(((2,),), ((4,),), (Piece(0, 0, ((2, 0, 2), (2, 1, 1))),))
TWO_PIECES = Layout(((3,),), ((4,),), (Piece(0, 0, ((3, 1, 1),)), Piece(1, 3)))  # stay two


@pytest.mark.parametrize("layout", [TWICE, TWO_PIECES])
def test_a_repeat_has_no_inverse(layout: Layout) -> None:
    with pytest.raises(InverseError, match=r"inverse: .* sends one input to several outputs"):
        layout.inverse()


def test_sizes_that_do_not_meet_do_not_compose() -> None:
    with pytest.raises(
        CompositionError,
        match=r"the first makes 6 elements \(\(2, 3\),\), the second takes 8 \(\(8,\),\)",
    ):
        Layout.identity((2, 3)) >> Layout.identity((8,))


def test_a_chain_of_more_than_4096_pieces_is_refused() -> None:
    first, second, third = (
        Layout.permute((a, b), (1, 0)).regrouped([(a * b,)], [(a * b,)])
        for a, b in ((131, 149), (127, 153), (113, 171))
    )
    two = first >> Layout.slice(first.out_size, 0, second.in_size) >> second
    assert len(two.pieces) == 275
    shorter = Layout.slice(second.out_size, 0, third.in_size)
    with pytest.raises(
        CompositionError,
        match=r"layout >> layout: the result has \d+ pieces, the limit is 4096: .*; apply the "
        r"layouts one after the other",
    ):
        two >> shorter >> third


def test_a_composition_gives_up_before_it_fills_the_memory() -> None:
    first, second, third = (
        Layout.permute((a, b), (1, 0)).regrouped([(a * b,)], [(a * b,)])
        for a, b in ((1009, 1013), (499, 2000), (997, 1001))
    )
    two = first >> Layout.slice(first.out_size, 0, second.in_size) >> second
    shorter = Layout.slice(second.out_size, 0, third.in_size)
    with pytest.raises(CompositionError, match=r"more than 262144 pieces.*the limit is 4096"):
        two >> shorter >> third


def test_a_layout_of_more_than_4096_pieces_is_not_run_and_says_what_would() -> None:
    x = np.arange(9001)
    scattered = Layout([(9001,)], [(9001,)], [Piece(pow(7, k, 9001), k) for k in range(9001)])
    for refused in (lambda: scattered(x), lambda: scattered.lift((2,))):
        with pytest.raises(CompositionError, match=r"limit is 4096; .*x.reshape\(-1\)\[layout"):
            refused()
    assert x.reshape(-1)[scattered.index()].tolist() == [pow(7, k, 9001) for k in range(9001)]


CONSTRUCTORS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: Layout.permute((2, 3), (0, 0)), AxisError, r"axes: \(0, 0\); wanted each of 0 to 1"),
    (lambda: Layout.permute((2, 3), (0,)), AxisError, r"axes: \(0,\); wanted each of 0 to 1"),
    (lambda: Layout.permute((2, 3), (0, 2)), AxisError, r"axes: 2; the array has axes -2 to 1"),
    (lambda: Layout.permute((2, 3), (0, 1.5)), TypeError, r"axes: 1.5 is a float; wanted an int"),
    (lambda: Layout.identity((2, -3)), SizeError, r"shape: -3; wanted at least 0"),
    (lambda: Layout.identity("ab"), TypeError, r"shape: 'ab'; wanted a sequence of ints"),
    (lambda: Layout.identity((2.0,)), TypeError, r"shape: \(2.0,\); wanted a sequence of ints"),
    (lambda: Layout.slice((5,), 3, 2), SizeError, r"start, stop: 3:2 is not a stretch of axis 0"),
    (lambda: Layout.slice((5,), 0, 6), SizeError, r"0:6 is not a stretch of axis 0 = 5"),
    (lambda: Layout.slice((5,), -1), SizeError, r"start: -1; wanted at least 0"),
    (lambda: Layout.slice((5,), axis=1), AxisError, r"axis: 1; the array has axes -1 to 0"),
    (lambda: Layout.slice((), 0), AxisError, r"axis: 0; the array has no axes \(it is a scalar\)"),
    (lambda: Layout.pad((5,), 4), SizeError, r"to: 4 is less than axis 0 = 5; pad only lengthens"),
    (lambda: stack.layout(None), TypeError, r"shapes: None; wanted a sequence of shapes"),
    (lambda: Layout.concat([]), SizeError, r"shapes: none given"),
    (lambda: Layout.concat([(2, 3), (2, 4)]), SizeError, r"differ outside axis 0"),
    (lambda: Layout.concat([(2, 3), (2,)]), SizeError, r"differ outside axis 0"),
    (lambda: Layout.identity(6).lift(before=(-1,)), SizeError, r"before: -1; wanted at least 0"),
    (lambda: Layout.identity(6).regrouped([(5,)]), SizeError, r"in_shapes: .* hold the elements"),
    (
        lambda: Layout.identity(6).regrouped(out_shapes=[(2, 2)]),
        SizeError,
        r"out_shapes: \(\(2, 2\),\) does not hold the elements of \(\(6,\),\)",
    ),
    (
        lambda: Layout.concat([(2,), (3,)]).in_shape,
        ShapeError,
        r"in_shape: the layout has 2 arrays on that side; use `in_shapes`",
    ),
    (
        lambda: Layout.concat([(2,), (3,)]).inverse().out_shape,
        ShapeError,
        r"out_shape: the layout has 2 arrays on that side; use `out_shapes`",
    ),
]


@pytest.mark.parametrize(("make", "error", "message"), CONSTRUCTORS)
def test_a_constructor_refuses(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


def test_every_refusal_of_a_value_is_a_layout_error() -> None:
    errors = [error for _, error, _ in CONSTRUCTORS if error is not TypeError]
    assert all(issubclass(error, LayoutError) for error in errors)
    assert issubclass(LayoutError, ValueError)
