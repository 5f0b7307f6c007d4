"""Text of a layout: what is written is read back as an equal layout."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.counted import counted
from tests.strategies import several
from xlayout.algebra import Layout, Piece
from xlayout.errors import LayoutError
from xlayout.ops import rearrange, to_tiles


@given(several())
def test_parse_reads_what_str_writes(layout: Layout) -> None:
    assert Layout.parse(str(layout)) == layout


@given(several())
def test_json_reads_what_json_writes(layout: Layout) -> None:
    again = Layout.from_json(layout.to_json())
    assert again == layout
    assert again.to_json() == layout.to_json()


@given(several())
def test_repr_evaluates(layout: Layout) -> None:
    assert eval(repr(layout), {"Layout": Layout, "Piece": Piece}) == layout


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout.permute((2, 3, 4), (1, 0, 2)), "a=2 b=3 c=4 -> b a c"),
        (Layout.permute((2, 3), (1, 0)).regrouped([(6,)], [(6,)]), "(a=2 b=3) -> (b a)"),
        (Layout.identity(()), " -> "),
        (Layout.identity((1, 3, 1)), "1 a=3 1 -> 1 a 1"),
        (Layout.identity((0, 3)), "(0, 3) -> (0, 3) {}"),
        (Layout.slice((5, 2), 1, 3), "(5, 2) -> (2, 2) {0<-2: (4, 1, 1)}"),
        (Layout.concat([(3,), (2,)]), "a=3, b=2 -> (a + b)"),
        (
            rearrange.layout([(6,), (4,)], "(g a), (g b) -> (g (a + b))", g=2),
            "(a=2 b=3), (a c=2) -> (a (b + c))",
        ),
        (to_tiles.layout((5, 4), grid=(1, 3)), "a=5 (b=2 + c=1 + d=1) -> a b, a c, a d"),
        (to_tiles.layout((3, 2), grid=(2, 1)).inverse(), "a=2 b=2, c=1 b -> (a + c) b"),
    ],
    ids=str,
)
def test_the_notation_is(layout: Layout, text: str) -> None:
    assert str(layout) == text
    assert Layout.parse(text) == layout


def test_more_axes_than_letters_are_named_too() -> None:
    shape = (2,) * 30
    layout = Layout.permute(shape, tuple(reversed(range(30))))
    assert str(layout).startswith("a=2 b=2")
    assert Layout.parse(str(layout)) == layout


def test_the_text_of_hundreds_of_axes_takes_steps_in_their_number() -> None:
    def steps(rank: int) -> int:
        layout = Layout.permute((2,) * rank, tuple(reversed(range(rank))))
        with counted() as seen:
            text = str(layout)
        assert Layout.parse(text) == layout
        return seen["call"]

    assert steps(300) < 3.3 * steps(100)


def test_json_is_stable() -> None:
    assert Layout.permute((2, 3), (1, 0)).to_json() == (
        '{"format":"xlayout.layout/1","in_shapes":[[2,3]],"out_shapes":[[3,2]],'
        '"pieces":[[0,0,[[3,1,2],[2,3,1]]]]}'
    )


GOOD = json.loads(Layout.permute((2, 3), (1, 0)).to_json())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("nonsense", r"from_json: not a layout: Expecting value"),
        ([], r"from_json: not a layout: \[\]; wanted an object"),
        ({}, r"from_json: not a layout: no 'format'"),
        ({"format": "xlayout.layout/1"}, r"from_json: not a layout: no 'in_shapes'"),
        ({**GOOD, "format": "xlayout.layout/9"}, r"from_json: format 'xlayout.layout/9'; this"),
        (
            {**GOOD, "pieces": [[0, 0]]},
            r"from_json: .* \[0, 0\]; wanted \[in offset, out offset, l",
        ),
        ({**GOOD, "pieces": {}}, r"from_json: not a layout: pieces: \{\}; wanted a list"),
        (
            {**GOOD, "pieces": [[0, 0, [[3, 1]]]]},
            r"from_json: not a layout: loops: \(\[3, 1\],\); w",
        ),
        ({**GOOD, "pieces": [[0.5, 0, []]]}, r"from_json: not a layout: in_offset: 0.5"),
        ({**GOOD, "pieces": [[-1, 0, []]]}, r"piece: offsets -1, 0; both must be at least 0"),
        ({**GOOD, "pieces": [[0, 0, [[9, 1, 1]]]]}, r"outside the index spaces of 6 -> 6"),
        ({**GOOD, "pieces": [[0, 0, []], [1, 0, []]]}, r"write the same output position"),
        ({**GOOD, "in_shapes": [[2, -3]]}, r"in_shapes: -3; wanted at least 0"),
        (
            {**GOOD, "in_shapes": [["2", 3]]},
            r"from_json: not a layout: in_shapes: \['2', 3\]; want",
        ),
        ({**GOOD, "in_shapes": 6}, r"from_json: not a layout: in_shapes: 6; wanted a list"),
        ({**GOOD, "in_shapes": [{}]}, r"from_json: not a layout: in_shapes: \{\}; wanted a list"),
        ({**GOOD, "pieces": [[0, 0, {}]]}, r"from_json: not a layout: loops: \{\}; wanted a list"),
        ({**GOOD, "in_shapes": {}}, r"from_json: not a layout: in_shapes: \{\}; wanted a list"),
        ({**GOOD, "in_shapes": [True]}, r"from_json: not a layout"),
    ],
)
def test_json_that_is_no_layout_is_refused(data: object, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Layout.from_json(data if isinstance(data, str) else json.dumps(data))


@pytest.mark.parametrize("given", [None, 3, {}, Layout.permute((2, 3), (1, 0))])
def test_json_is_read_from_text_alone(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^from_json: .*; wanted the text that to_json\(\) makes$"):
        Layout.from_json(given)


@pytest.mark.parametrize(
    "text",
    [
        "(6,) -> (6,) {0<-0: (6, 1)}",
        "(6,) -> (6,) {0<-0 (6, 1, 1)}",
        "(6,) -> (6,) {0<-0: (6, 1, 1)} more",
        "(6,) {0<-0: (6, 1, 1)}",
        "(6,) -> six {0<-0: (6, 1, 1)}",
    ],
)
def test_pieces_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(LayoutError, match=r"layout: cannot read .*; wanted shapes -> shapes \{"):
        Layout.parse(text)


def test_shapes_that_are_told_twice_must_agree() -> None:
    layout = Layout.parse("(4,), (2,) -> (6,) {0<-0: (4, 1, 1)}")
    assert Layout.parse(str(layout), [(4,), (2,)]) == layout
    with pytest.raises(LayoutError, match=r"^shape: \(4,\), \(3,\); .* takes \(4,\), \(2,\)$"):
        Layout.parse(str(layout), [(4,), (3,)])


@pytest.mark.parametrize("shape", [(np.int64(2), np.int8(3)), np.array([2, 3]), [(2, 3)]], ids=repr)
def test_sizes_of_numpy_are_sizes(shape: Any) -> None:
    wanted = Layout.permute((2, 3), (1, 0))
    assert Layout.parse("a b -> b a", shape) == rearrange.layout(shape, "a b -> b a") == wanted


def test_sizes_may_come_from_an_iterator() -> None:
    assert Layout.parse("a b -> b a", iter((2, 3))) == Layout.permute((2, 3), (1, 0))


@pytest.mark.parametrize("shape", [{2, 3}, {2: 0, 3: 1}, b"\2\3"], ids=repr)
def test_sizes_come_in_an_order(shape: Any) -> None:
    with pytest.raises(TypeError, match=r"^shape: .*; wanted a sequence of ints, or several$"):
        Layout.parse("a b -> b a", shape)
