"""Join: two boxes meet where they share a position; longer loops take no more time.

Among many boxes those that one meets are found without trying all.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.table import pairs
from xlayout.algebra.join import Side, join, side
from xlayout.algebra.near import near
from xlayout.errors import CompositionError


@st.composite
def sides(draw: st.DrawFn) -> Side:
    """Nested shared strides with gaps, each with any stride of its own."""
    steps, reach = [], 0
    for _ in range(draw(st.integers(0, 3))):
        stride = reach + draw(st.integers(1, 4))
        n = draw(st.integers(1, 4))
        steps.append((n, stride, draw(st.integers(-9, 9))))
        reach += (n - 1) * stride
    return side(draw(st.integers(0, 20)), draw(st.integers(-9, 9)), tuple(steps))


def positions(box: Side) -> dict[int, int]:
    """The position that a box has at each shared position."""
    return dict(pairs(*box))


def met(a: Side, b: Side) -> list[tuple[int, int]]:
    """The positions of both, wherever they meet."""
    return sorted(pair for meeting in join(a, b) for pair in pairs(*meeting))


@given(sides(), sides())
@example(side(1, 0, ()), side(0, 0, ((1, 1, 0), (2, 1, 0))))  # a loop of one step goes nowhere
def test_boxes_meet_exactly_where_they_share_a_position(a: Side, b: Side) -> None:
    ours, theirs = positions(a), positions(b)
    assert met(a, b) == sorted((ours[y], theirs[y]) for y in ours.keys() & theirs.keys())


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_every_fifth_position_meets_an_axis_whole_wherever_the_first_is(ahead: int) -> None:
    axes = side(0, 0, ((4, 60, 60), (12, 5, 5), (5, 1, 1)))
    assert list(join(axes, side(ahead, 0, ((48, 5, 1),)))) == [
        (ahead, 0, ((4, 60, 12), (12, 5, 1)))
    ]


def test_columns_of_every_head_are_one_box_to_the_last_head_of_a_row() -> None:
    axes = side(0, 0, ((5, 24, 100), (24, 1, 1)))
    keys = side(3, 0, ((20, 6, 2), (2, 1, 1)))
    assert list(join(axes, keys)) == [(3, 0, ((5, 100, 8), (4, 6, 2), (2, 1, 1)))]


@given(st.lists(sides(), min_size=4, max_size=12), st.integers(1, 3), sides())
def test_whatever_a_box_meets_among_many_is_near(few: list[Side], n: int, box: Side) -> None:
    steps = max(few, key=lambda one: len(one[2]))[2]  # of one form, then of many
    alike = [(at, carried, steps) for at, carried, _ in few]
    for boxes in (
        alike * 5,
        few * 5,
        [(60 * k + at, *rest) for k, (at, *rest) in enumerate(few * n)],
    ):
        numbers = near(boxes)(box)
        assert len(set(numbers)) == len(numbers)
        assert {k for k, one in enumerate(boxes) if met(one, box)} <= set(numbers)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
def test_meetings_do_not_grow_with_the_loops(x: int, z: int, ahead: int) -> None:
    def meetings(n: int) -> int:
        a, b = side(0, 0, ((n, x, 1),)), side(ahead, 0, ((n, z, 1),))
        return sum(1 for _ in join(a, b))

    assert meetings(5040 * 100) <= meetings(5040) + x + z
    assert meetings(5040) < 100


@given(st.tuples(*[st.integers(1, 60)] * 4), st.integers(0, 99), st.integers(1, 3))
def test_strides_without_a_common_measure_meet_exactly_too(
    numbers: tuple[int, int, int, int], ahead: int, inner: int
) -> None:
    n, x, m, z = numbers
    a = side(ahead, 0, ((n, x + inner, 1), (inner, 1, 1000)))
    b = side(0, 0, ((m, z + 1, 1), (2, 1, 1000)))
    ours, theirs = positions(a), positions(b)
    assert met(a, b) == sorted((ours[y], theirs[y]) for y in ours.keys() & theirs.keys())


def test_boxes_that_hardly_meet_take_no_longer_for_their_size() -> None:
    n = 10**9
    assert met(side(0, 0, ((n, n + 7, 1),)), side(0, 0, ((n, n, 1),))) == [(0, 0)]
    few = met(side(5, 0, ((n, n + 7, 1), (3, 1, 0))), side(0, 0, ((n, n, 1), (2, 2, 0))))
    assert all((k * (n + 7) + 5 - j * n) in (-2, -1, 0, 1, 2) for k, j in few)
    assert len(few) == 5


def test_boxes_that_may_meet_after_ages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xlayout.algebra.join._MOST", 1 << 10)
    period, even = 1 << 41, 1 << 31
    a = side(0, 0, ((1 << 50, 3 * period + 2, 1),))
    b = side(5, 0, ((1 << 52, period, 1000), (1000, even, 1)))  # odd, where all of `a` is even
    with pytest.raises(CompositionError, match=f"strides of {3 * period + 2} and {period} have no"):
        next(join(a, b), None)


def test_boxes_of_more_loops_than_python_stacks_calls_meet() -> None:
    deep = side(0, 0, tuple((2, 4**k, k) for k in range(600)))
    flat = side(0, 0, ((4**600, 1, 0),))
    ((x, z, loops),) = join(deep, flat)
    assert (x, z) == (0, 0)
    assert [loop for loop in loops if loop[0] == 2] == [(2, k, 0) for k in reversed(range(600))]
