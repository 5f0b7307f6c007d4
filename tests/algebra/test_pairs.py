"""Sets of pieces as sets of pairs: composed, compared and numbered, whichever way is taken."""

from __future__ import annotations

import random

import pytest

from tests.table import pairs
from xlayout.algebra import Layout, Piece
from xlayout.algebra.compose import compose, disjoint, same_pairs
from xlayout.algebra.fingerprint import fingerprint
from xlayout.algebra.merge import merge

Pairs = list[tuple[int, int]]


def pairs_of(pieces: tuple[Piece, ...]) -> Pairs:
    """Every (input, output) pair of some pieces."""
    return sorted(pair for p in pieces for pair in pairs(p.in_offset, p.out_offset, p.loops))


def joined(first: Pairs, then: Pairs) -> Pairs:
    """All (i, o) with a middle position between them."""
    return sorted((i, o) for i, m in first for there, o in then if m == there)


def scattered(seed: int, *, outputs: int) -> tuple[Piece, ...]:
    """Ninety single pairs and a few twos; with few outputs some are written more than once."""
    rng = random.Random(seed)
    ones = [Piece(rng.randrange(200), o) for o in rng.choices(range(outputs), k=90)]
    if outputs == 200:
        ones = [
            Piece(p.in_offset, o) for p, o in zip(ones, rng.sample(range(200), 90), strict=True)
        ]
    return (*ones, *(Piece(7 * k, 200 + 2 * k, ((2, 3, 1),)) for k in range(9)))


@pytest.mark.parametrize("outputs", [200, 40])
@pytest.mark.parametrize("seed", range(4))
def test_many_small_pieces_compose_like_few_large_ones(seed: int, outputs: int) -> None:
    first, then = scattered(seed, outputs=outputs), scattered(seed + 9, outputs=200)
    assert pairs_of(compose(first, then)) == joined(pairs_of(first), pairs_of(then))
    assert pairs_of(compose(then, first)) == joined(pairs_of(then), pairs_of(first))


def test_many_small_pieces_that_meet_nowhere_compose_to_nothing() -> None:
    even = tuple(Piece(3 * k % 97, 2 * k) for k in range(97))
    odd = tuple(Piece(2 * k + 1, 5 * k % 97) for k in range(97))
    assert compose(even, odd) == ()


LINE = Piece(0, 0, ((8, 1, 1),))
TURNED = Piece(0, 0, ((2, 1, 4), (4, 2, 1)))
HALVES = Piece(0, 0, ((4, 1, 1),)), Piece(4, 4, ((4, 1, 1),))
ROWS = Piece(0, 0, ((2, 2, 1),)), Piece(1, 2, ((2, 2, 1),))
TWICE = tuple(Piece(k % 8, k) for k in range(16))  # LINE holds half of these


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ((LINE,), HALVES, True),
        (ROWS, (Piece(0, 0, ((2, 1, 2), (2, 2, 1))),), True),
        ((LINE,), (TURNED,), False),
        (*((Piece(0, 0, ((2, x, 4), (4, 1, 1))),) for x in (10, 11)), False),
        ((LINE,), (Piece(0, 0, ((9, 1, 1),)),), False),
        ((Piece(0, 0, ((9, 1, 1),)),), (LINE,), False),
        ((LINE,), (Piece(1, 0, ((8, 1, 1),)),), False),
        ((LINE,), tuple(Piece(k, k) for k in reversed(range(8))), True),
        (TWICE, (LINE,), False),
        ((LINE,), TWICE, False),
        (TWICE, TWICE[::-1], True),
    ],
)
def test_sets_are_the_same_exactly_when_their_pairs_are(
    left: tuple[Piece, ...], right: tuple[Piece, ...], same: bool
) -> None:
    assert (pairs_of(left) == pairs_of(right)) == same
    assert same_pairs(left, right) == same


@pytest.mark.parametrize("pieces", [HALVES, TWICE, scattered(1, outputs=200), (LINE, TURNED)])
def test_disjoint_means_that_no_output_is_written_twice(pieces: tuple[Piece, ...]) -> None:
    outputs = [o for _, o in pairs_of(pieces)]
    assert disjoint(pieces) == (len(set(outputs)) == len(outputs))
    assert not disjoint((*pieces, Piece(999, outputs[-1])))


def test_an_identity_is_one_piece_where_greed_makes_two() -> None:
    cut = Piece(0, 0), Piece(1, 1, ((2, 2, 2),)), Piece(2, 2), Piece(4, 4)
    assert merge(cut) == (Piece(0, 0, ((5, 1, 1),)),)
    for other in ((*cut[:3], Piece(5, 5)), (*cut[:3], Piece(5, 4)), (*cut[:2], Piece(3, 3))):
        assert pairs_of(merge(other)) == pairs_of(other)


def test_strides_that_fermat_makes_one_are_numbered_like_any_other() -> None:
    order = (1 << 61) - 2  # r^order is 1 for every r, and there a geometric sum has no quotient
    assert fingerprint((Piece(0, 0, ((3, order, order),)),)) == 3
    whole = Layout.slice((3, 2 * order), 0, order, axis=1)
    row = Piece(0, 0, ((order, 1, 1),))
    rest = Piece(2 * order, order, ((2, 2 * order, order), *row.loops))
    assert fingerprint((row, rest)) == fingerprint(whole.pieces)


def test_single_steps_are_one_loop() -> None:
    assert merge(Piece(5 + 2 * k, k) for k in range(4)) == (Piece(5, 0, ((4, 2, 1),)),)
    assert merge(Piece(0, 3 - k) for k in range(4)) == (Piece(0, 0, ((4, 0, 1),)),)


def test_pieces_that_read_one_position_are_one() -> None:
    assert merge(Piece(4, 3 * k) for k in range(5)) == (Piece(4, 0, ((5, 0, 3),)),)
    rows = [Piece(2, 6 * k, ((3, 1, 2),)) for k in range(2)]
    assert merge(rows) == (Piece(2, 0, ((2, 0, 6), (3, 1, 2))),)
