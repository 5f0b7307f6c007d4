"""Rounds carry messages of any size with at most a tenth of padding, in nearly the fewest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import xlayout as xl
from tests.counted import counted
from xlayout.shard.message import Message
from xlayout.shard.rounds import in_rounds


@st.composite
def messages(draw: DrawFn) -> tuple[list[Message], int]:
    """Ragged messages: small, of a few sizes, of any size, or spread over orders of magnitude."""
    ranks = draw(st.integers(2, 6))
    size = draw(
        st.sampled_from(
            [
                st.integers(1, 9),
                st.sampled_from([1000, 1001, 4999]),
                st.integers(1, 10**6),
                st.integers(0, 20).map(lambda k: 2**k + k),
            ]
        )
    )
    pairs = [(src, dst) for src in range(ranks) for dst in range(ranks)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True))
    return [Message(*pair, xl.Layout.identity((draw(size),))) for pair in chosen], ranks


@given(messages())
def test_every_message_travels_once_and_a_tenth_is_padding_at_most(
    drawn: tuple[list[Message], int],
) -> None:
    sent, ranks = drawn
    stretches: dict[tuple[int, int], list[tuple[int, int]]] = {}
    useful = padded = 0
    for step in in_rounds(sent, ranks):
        ends = [(t.message.src, t.message.dst) for t in step.transfers]
        assert len({src for src, _ in ends}) == len({dst for _, dst in ends}) == len(ends)
        for t in step.transfers:
            assert 0 < t.last - t.first <= step.width
            stretches.setdefault((t.message.src, t.message.dst), []).append((t.first, t.last))
            useful += t.last - t.first
        padded += step.padding
    assert 10 * padded <= useful
    for m in sent:
        if m.is_remote:
            parts = sorted(stretches.pop((m.src, m.dst)))
            assert [0, *(last for _, last in parts)] == [*(first for first, _ in parts), m.elements]
    assert not stretches


@given(messages())
def test_a_round_ends_a_message_or_is_one_of_a_few(drawn: tuple[list[Message], int]) -> None:
    sent, ranks = drawn
    remote = sum(m.is_remote for m in sent)
    assert len(in_rounds(sent, ranks)) <= max(4 * (ranks - 1), remote)


@pytest.mark.parametrize("ranks", [5, 6, 8])
def test_equal_messages_take_as_many_rounds_as_a_rank_has_partners(ranks: int) -> None:
    block = xl.Layout.identity((7,))
    sent = [Message(a, b, block) for a in range(ranks) for b in range(ranks)]
    found = [(r.width, len(r.transfers), r.padding) for r in in_rounds(sent, ranks)]
    assert found == [(7, ranks, 0)] * (ranks - 1)


def test_sizes_with_a_common_measure_are_cut_to_it() -> None:
    sent = [Message(0, 1, xl.Layout.identity((6,))), Message(1, 0, xl.Layout.identity((4,)))]
    assert [(r.width, r.padding) for r in in_rounds(sent, 2)] == [(2, 0)] * 3


@pytest.mark.parametrize(
    ("sizes", "rounds"),
    [
        ({(0, 1): 1001, (1, 0): 1000}, [(1001, 1)]),
        ({(0, 1): 4, (1, 0): 3}, [(1, 0)] * 4),  # as many as are allowed
        ({(0, 1): 5, (1, 0): 3}, [(3, 0), (2, 0)]),
        ({(1, 0): 3, (2, 0): 4, (3, 0): 5}, [(1, 0)] * 12),
        ({(1, 0): 3, (2, 0): 4, (3, 0): 6}, [(6, 0), (4, 0), (3, 0)]),  # too many to receive
        ({(0, 1): 1, (1, 2): 1, (3, 1): 3, (3, 2): 8}, [(1, 0)] * 12),
        ({(0, 1): 1, (1, 2): 1, (3, 1): 4, (3, 2): 8}, [(1, 0), (7, 0), (1, 0), (3, 0)]),  # not 13
        ({(0, 1): 11, (1, 0): 9}, [(11, 2)]),  # a tenth of what is useful
        ({(0, 1): 13, (1, 0): 10}, [(10, 0), (3, 0)]),
        ({(0, 1): 20, (1, 2): 19, (2, 0): 18}, [(20, 3)]),
    ],
)
def test_where_that_takes_too_many_rounds_ends_are_padded(
    sizes: dict[tuple[int, int], int], rounds: list[tuple[int, int]]
) -> None:
    sent = [Message(*ends, xl.Layout.identity((n,))) for ends, n in sizes.items()]
    ranks = 1 + max(map(max, sizes))
    assert [(r.width, r.padding) for r in in_rounds(sent, ranks)] == rounds


def test_four_times_the_sizes_take_four_times_the_planning() -> None:
    def planned(ranks: int) -> int:
        pairs = [(k, (k + 1) % ranks) for k in range(ranks)]
        sent = [Message(*ends, xl.Layout.identity((1000 + ends[0],))) for ends in pairs]
        with counted() as seen:
            in_rounds(sent, ranks)
        return seen.total()

    few, many = planned(64), planned(256)
    assert few < many < 5 * few


@pytest.mark.parametrize("parts", [(2,), (3, 4)])  # all alike; of rows and columns cut unevenly
def test_four_times_the_messages_take_four_times_the_planning(parts: tuple[int, ...]) -> None:
    def planned(ranks: int) -> int:
        cut = [parts[rank % len(parts)] for rank in range(ranks)]
        blocks = {(n, m): xl.Layout.identity((n, m)) for n in parts for m in parts}
        sent = [Message(a, b, blocks[n, m]) for a, n in enumerate(cut) for b, m in enumerate(cut)]
        with counted() as seen:
            in_rounds(sent, ranks)
        return seen.total()

    few, many = planned(64), planned(128)
    assert few < many < 5 * few
