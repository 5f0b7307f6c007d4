"""A plan for the Triton kernel moves what it should, in vectors that are aligned as needed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.oracle import Loops, expect
from tests.native.test_copy import copies, permuted
from tests.triton.cases import (
    EDGES,
    FAMILIES,
    ITEMSIZES,
    NARROW_EDGES,
    compounds,
    prepared,
    several,
)
from tests.triton.emulator import emulate
from xlayout_triton.plan import GROUP, JOBS, Piece, alignment, pieces_of, plan, planned
from xlayout_triton.tile import OUTER, STRIP, WORDS, cut


def agree(loops: Loops, itemsize: int, shift: int) -> None:
    """The plan leaves the bytes that numpy leaves, in and around the target."""
    move, source, made, wanted = prepared(loops, itemsize, shift)
    expect([move], itemsize, [source], [wanted])
    found = pieces_of((move,), itemsize, [alignment(source.address)], [alignment(made.address)])
    if found is None:
        assert len(loops) > OUTER
        return
    emulate(plan([Piece(piece.cut, (0, 1)) for piece in found]), [source, made])
    assert made.bytes.tobytes() == wanted.bytes.tobytes()
    assert made.intact()


@settings(max_examples=300)
@given(copies(), st.sampled_from(ITEMSIZES), st.integers(0, 4095))
def test_any_strided_copy(loops: Loops, itemsize: int, shift: int) -> None:
    agree(loops, itemsize, shift)


@settings(max_examples=200)
@given(compounds(1 << 16), st.sampled_from(ITEMSIZES), st.integers(0, 4095))
def test_any_transpose_of_short_loops(loops: Loops, itemsize: int, shift: int) -> None:
    agree(loops, itemsize, shift)


@pytest.mark.parametrize("itemsize", ITEMSIZES)
@pytest.mark.parametrize("name", FAMILIES)
def test_each_family(name: str, itemsize: int) -> None:
    agree(FAMILIES[name], itemsize, 0)
    agree(FAMILIES[name], itemsize, 3 + 64 * 9)


@pytest.mark.parametrize(("shape", "itemsize"), EDGES + NARROW_EDGES)
def test_transposes_that_end_where_tiles_do(shape: tuple[int, int], itemsize: int) -> None:
    for shift in (0, 1 + 64 * 7, 6 + 64):
        agree(permuted(shape, (1, 0)), itemsize, shift)
        agree(permuted(shape[::-1], (1, 0)), itemsize, shift)


@settings(max_examples=60)
@given(
    st.tuples(st.integers(1, 2), st.integers(256, 800), st.integers(128, 400)),
    st.sampled_from([1, 2, 4]),
    st.integers(0, 4095),
)
def test_any_transpose_of_rows_that_begin_within_words(
    shape: tuple[int, int, int], itemsize: int, shift: int
) -> None:
    agree(permuted(shape, (0, 2, 1)), itemsize, shift)


@settings(max_examples=60)
@given(
    st.tuples(st.integers(1, 3), st.integers(256, 5000), st.integers(2, 8)),
    st.sampled_from([1, 2]),
    st.integers(0, 4095),
)
def test_any_transpose_of_a_few_columns_or_rows(
    shape: tuple[int, int, int], itemsize: int, shift: int
) -> None:
    agree(permuted(shape, (0, 2, 1)), itemsize, shift)
    agree(permuted((shape[0], shape[2], shape[1]), (0, 2, 1)), itemsize, shift)


@pytest.mark.parametrize("loops", [
    tuple((3, 3**k, 3 ** (11 - k)) for k in range(12)),  # more axes than are counted
    ((1 << 44, 2, 1),),  # more tiles
])  # fmt: skip
def test_what_is_too_much_has_no_plan(loops: Loops) -> None:
    small, large = (0, 0, (0, 0, ((64, 2, 1),))), (0, 0, (0, 0, loops))
    assert pieces_of((small, large), 4, [16], [16]) is None
    assert planned(((small,), 4, [16], [16]), ((large,), 4, [16], [16])) is None
    assert planned(((small,), 4, [16], [16]), ((small,), 4, [16], [16])) is not None


TURN = ((0, 0, (0, 0, ((512, 1, 512), (512, 512, 1)))),), 4, [16], [16]


@pytest.mark.parametrize(("pieces", "tiles"), [(1, (1 << 31) - 1), (2, (1 << 30) - (1 << 20))])
def test_31_bits_count_tiles_and_the_programs_of_a_launch(pieces: int, tiles: int) -> None:
    for many, found in ((tiles, True), ((1 << 31) // pieces, False)):
        call = ((0, 0, (0, 0, ((many * STRIP, 1, 1),))),) * pieces, 1, [16], [16]
        assert (planned(call) is not None) is found
        assert (planned(call, TURN) is not None) is found  # of which there are few
        assert (pieces_of(*call) is not None) is (found or pieces > 1)


def test_several_kinds_of_pieces_between_several_buffers() -> None:
    moves, sources, made, wanted = several()
    found = pieces_of(tuple(moves), 4, [16, 16], [16, 16])
    assert found is not None
    pieces = [Piece(one, (source, 2 + target)) for one, (source, target) in found]
    emulate(plan(pieces), [*sources, *made])
    assert [b.bytes.tobytes() for b in made] == [b.bytes.tobytes() for b in wanted]
    assert all(b.intact() for b in made)


def test_pieces_of_one_kind_are_one_launch() -> None:
    rows = cut(0, 0, ((1 << 16, 1, 1),), 4, (16, 16))
    assert rows is not None
    made = plan([Piece(rows, (2 * k, 2 * k + 1)) for k in range(1000)])
    (launch,) = made.launches
    assert launch.jobs == 1000 * WORDS
    assert len(made.words) == 1000 * WORDS + 1000 * -(-rows.count // launch.group)


@pytest.mark.parametrize("split", [False, True])
def test_rows_between_each_other_take_turns(split: bool) -> None:
    """In an input that is split, or in an output that is merged."""
    step = (4096, 2048, 512) if split else (4096, 512, 2048)
    starts = [(512 * k, 0) if split else (0, 512 * k) for k in range(4)]
    found = [cut(*start, (step, (512, 1, 1)), 4, (16, 16)) for start in starts]
    pieces = [
        Piece(one, (whole, 100 + part) if split else (part, 100 + whole))
        for whole in range(2)
        for part, one in enumerate(found)
        if one is not None
    ]
    (launch,) = (made := plan(pieces)).launches
    assert launch.jobs is not None
    jobs = [job >> 32 for job in made.words[launch.jobs :]]
    half = len(jobs) // 2
    assert jobs[:half] == [0, 1, 2, 3] * (half // 4)
    assert set(jobs[half:]) == {4, 5, 6, 7}  # of another tensor, and after them


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    ("step", "columns"),
    [
        (1 << 22, ((1 << 22, 1, 1),)),  # one behind the other
        (1024, ((512, 1024, 4096), (1024, 1, 1))),  # between each other, in rows of whole tiles
        (2048 * 512, ((2048, 512, 512), (512, 1, 1))),
        (2048 * 2048, ((2048, 512, 2048), (512, 1, 1))),  # below each other, in rows with gaps
    ],
)
def test_other_pieces_are_copied_one_after_another(split: bool, step: int, columns: Loops) -> None:
    ends = [(step * k, 0) if split else (0, step * k) for k in range(4)]
    if split:
        columns = tuple((n, write, read) for n, read, write in columns)
    found = [cut(*end, columns, 4, (16, 16)) for end in ends]
    places = [(9, k) if split else (k, 9) for k in range(4)]
    pieces = [
        Piece(one, place) for one, place in zip(found, places, strict=True) if one is not None
    ]
    (launch,) = (made := plan(pieces)).launches
    assert launch.jobs is not None
    jobs = [job >> 32 for job in made.words[launch.jobs :]]
    assert jobs == sorted(jobs)


def test_small_pieces_take_no_programs_that_find_nothing_to_do() -> None:
    small = cut(0, 0, ((100, 1, 1),), 4, (16, 16))
    assert small is not None
    (launch,) = plan([Piece(small, (2 * k, 2 * k + 1)) for k in range(1000)]).launches
    assert launch.programs == 1000 * small.count


def test_pieces_of_many_tiles_have_few_jobs() -> None:
    many = cut(0, 0, ((1 << 22, 1, 1),), 4, (16, 16))
    assert many is not None
    (launch,) = plan([Piece(many, (0, 1)), Piece(many, (2, 3))]).launches
    assert (launch.group, launch.programs) == (GROUP, 2 * many.count)


def test_the_table_stays_small_however_much_is_moved() -> None:
    rows = cut(0, 0, ((1 << 36, 1, 1),), 2, (16, 16))
    assert rows is not None
    (launch,) = plan([Piece(rows, (0, 1)), Piece(rows, (2, 3))]).launches
    assert launch.group > 1
    assert launch.programs // launch.group <= JOBS + 2


def test_one_piece_needs_no_jobs_and_no_moves_no_launch() -> None:
    rows = cut(0, 0, ((100, 1, 1),), 4, (16, 16))
    assert rows is not None
    assert plan([Piece(rows, (0, 1))]).launches[0].jobs is None
    assert plan([]).launches == ()


@pytest.mark.parametrize("loops", [((0, 1, 1),), ((5, 9, 9), (0, 1, 1)), ((5, 1, 1), (0, 9, 9))])
def test_nothing_is_no_piece(loops: Loops) -> None:
    assert pieces_of(((0, 0, (0, 0, loops)),), 4, [16], [16]) == []


def test_a_run_of_odd_length_is_vectors_and_a_rest() -> None:
    found = pieces_of(((0, 0, (32, 16, ((50_257, 1, 1),))),), 2, [16], [16])
    assert found is not None
    assert [one.cut.tile.unit for one in found] == [8, 2]
    whole, end = 2 * (16 + 50_256), 2 * (16 + 50_257)
    assert [one.cut.spans[1] for one in found] == [(32, whole), (whole, end)]


@pytest.mark.parametrize(
    "loops",
    [
        ((3, 1, 1),),  # less than a vector
        ((50_257, 2, 1),),  # with gaps
        ((50_257, 1, 2),),
        ((25, 1, 1), (7, 25, 30)),  # a run of several
    ],
)
def test_other_moves_are_one_piece_each(loops: Loops) -> None:
    found = pieces_of(((0, 0, (0, 0, loops)),), 2, [16], [16])
    assert found is not None
    assert [one.cut for one in found] == [cut(0, 0, loops, 2, (16, 16))]


def test_addresses_are_beside_the_table() -> None:
    rows = cut(0, 0, ((100, 1, 1),), 4, (16, 16))
    assert rows is not None
    made = plan([Piece(rows, (0, 2)), Piece(rows, (1, 2))])
    assert made.ends([111, 222, 333]).tolist() == [111, 333, 222, 333]
    assert made.words[: 2 * WORDS].tolist() == [*rows.words, *rows.words]


def test_places_count_the_arrays_of_one_call_after_the_other() -> None:
    run = 0, 0, ((64, 1, 1),)
    joins, splits = ((0, 0, run), (1, 0, run)), ((0, 0, run), (0, 1, run))
    made = planned(
        (joins, 4, [16, 16], [16]), (splits, 4, [16], [16, 16]), (joins, 4, [16] * 2, [16])
    )
    assert made is not None
    assert made.places == ((0, 2), (1, 2), (3, 4), (3, 5), (6, 8), (7, 8))


def test_pieces_are_counted_over_all_launches() -> None:
    rows = cut(0, 0, ((100, 1, 1),), 4, (16, 16))
    turned = cut(0, 0, ((512, 1, 512), (512, 512, 1)), 4, (16, 16))
    assert rows is not None
    assert turned is not None
    made = plan([Piece((rows, turned)[k % 2], (k, 9 - k)) for k in range(4)])
    first, second = made.launches
    assert made.places == ((1, 8), (3, 6), (0, 9), (2, 7))  # of one launch and then of the other
    assert (first.first, second.first) == (0, 2)
    assert first.jobs == 4 * WORDS  # behind all pieces
    assert second.jobs is not None
    assert {job >> 32 for job in made.words[first.jobs : second.jobs]} == {0, 1}
    assert {job >> 32 for job in made.words[second.jobs :]} == {2, 3}
