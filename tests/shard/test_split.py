"""Every named rule cuts an axis as the system it is named after does."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from xlayout.errors import AxisError, LayoutError, ShapeError, SizeError
from xlayout.shard import Mesh, Sharding, Split
from xlayout.shard.owners import whole


def chunk(a: np.ndarray, parts: int, k: int) -> np.ndarray:
    """As torch.chunk: parts of the quotient rounded up, the last ones short or empty."""
    size = -(-len(a) // parts)
    return a[k * size : (k + 1) * size]


def held(split: Split, n: int, counts: tuple[int, ...], place: tuple[int, ...]) -> list[int]:
    return [i for run in split.runs(n, counts, place) for i in run]


def sizes(split: Split, n: int, parts: int) -> list[int]:
    return [len(held(split, n, (parts,), (k,))) for k in range(parts)]


@pytest.mark.parametrize("n", range(20))
def test_ceil_cuts_after_cuts_as_dtensor_does(n: int) -> None:
    for i, j in itertools.product(range(4), range(2)):
        expected = chunk(chunk(np.arange(n), 4, i), 2, j)
        assert held(Split(), n, (4, 2), (i, j)) == expected.tolist()


@pytest.mark.parametrize("n", range(20))
def test_flat_ceil_counts_all_mesh_axes_as_one(n: int) -> None:
    for i, j in itertools.product(range(4), range(2)):
        expected = chunk(np.arange(n), 8, 2 * i + j)
        assert held(Split(rule="flat_ceil"), n, (4, 2), (i, j)) == expected.tolist()


def test_the_rules_differ_where_the_cut_is_uneven() -> None:
    assert sizes(Split(), 10, 4) == [3, 3, 3, 1]
    assert sizes(Split(), 9, 8) == [2, 2, 2, 2, 1, 0, 0, 0]
    assert sizes(Split(rule="balanced"), 10, 4) == [3, 3, 2, 2]
    assert sizes(Split(rule="balanced", unit=128), 12 * 128, 8) == [256] * 4 + [128] * 4
    assert sizes(Split(rule="balanced", unit=64), 50257, 8)[-1] == 6289
    assert sizes(Split(sizes=(4, 0, 5, 1)), 10, 4) == [4, 0, 5, 1]
    assert sizes(Split(sizes=(4, 0, 4, 3), unit=4), 11, 4) == [4, 0, 4, 3]  # the rest is the last's
    assert sizes(Split(rule="even"), 12, 4) == [3, 3, 3, 3]


def test_segments_are_cut_one_by_one() -> None:
    assert held(Split(segments=(4, 8)), 12, (2,), (1,)) == [2, 3, 8, 9, 10, 11]
    assert held(Split(segments=(3, 3)), 6, (2,), (0,)) == [0, 1, 3, 4]


def test_ranges_that_meet_are_one() -> None:
    assert Split(segments=3).runs(9, (1,), (0,)) == (range(9),)
    fused = Split(segments=(4, 2, 2), copies=(1, 2, 2))
    assert fused.runs(8, (2,), (1,)) == (range(2, 8),)
    assert fused.runs(8, (2,), (0,)) == (range(2), range(4, 8))


def test_copies_give_neighbours_the_same_part() -> None:
    split = Split(segments=(8, 2), copies=(1, 2))
    assert [held(split, 10, (4,), (k,)) for k in range(4)] == [
        [0, 1, 8], [2, 3, 8], [4, 5, 9], [6, 7, 9],
    ]  # fmt: skip


def test_each_segment_is_cut_at_its_own_units() -> None:
    """Six key-value heads of size 2 on four ranks, each with its two query heads."""
    split = Split(rule="balanced", segments=(24, 12), unit=(4, 2))
    assert [held(split, 36, (4,), (k,)) for k in range(4)] == [
        [*range(8), *range(24, 28)],
        [*range(8, 16), *range(28, 32)],
        [*range(16, 20), *range(32, 34)],
        [*range(20, 24), *range(34, 36)],
    ]


def test_pad_stores_every_part_at_the_largest() -> None:
    padded = Sharding(Mesh(4, "tp"), ("tp",), splits={0: Split(pad=True)})
    assert [padded.local_shape(r, (10, 2)) for r in range(4)] == [(3, 2)] * 4
    last = padded.layout(3, (10, 2))(np.arange(20).reshape(10, 2))
    assert last.tolist() == [[18, 19], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    "sharding",
    [
        Sharding(Mesh((2, 2), ("a", "b")), ("a", "b")),
        Sharding(Mesh((2, 2), ("a", "b")), (("b", "a"),)),
        Sharding(Mesh((2, 2), ("a", "b")), ("b",)),
        Sharding(Mesh(4, "a"), ("a",), splits={0: Split(segments=(3, 4), copies=(1, 4), pad=True)}),
        Sharding(Mesh(4, "a"), ("a",), splits={0: Split(rule="flat_ceil", pad=True)}, flat=True),
    ],
    ids=str,
)
def test_what_all_ranks_store_is_the_whole(sharding: Sharding) -> None:
    x = np.arange(35).reshape(7, 5)
    ranks = range(sharding.mesh.size)
    stored = [sharding.layout(r, x.shape)(x) for r in ranks]
    assert [s.shape for s in stored] == [sharding.local_shape(r, x.shape) for r in ranks]
    np.testing.assert_array_equal(whole(sharding, x.shape)(*stored), x)


def test_a_sharding_is_a_value() -> None:
    mesh = Mesh(4, "tp")
    assert Sharding(mesh, ("tp", None)) == Sharding(mesh, [["tp"]], splits={0: Split()})
    assert len({Sharding(mesh, ("tp",)), Sharding(mesh, (("tp",), ()))}) == 1
    assert str(Sharding(mesh, (None, "tp"), splits={1: Split(unit=2, copies=2, pad=True)})) == (
        "(-, tp, axis 1 by ceil in units of 2 with 2 copies padded) on tp=4"
    )


def test_repr_evaluates_and_replace_replaces() -> None:
    sharding = Sharding(Mesh(4, "tp"), ("tp",), splits={0: Split(segments=2)}, flat=True)
    names = {"Mesh": Mesh, "Sharding": Sharding, "Split": Split}
    assert eval(repr(sharding), names) == sharding
    assert replace(sharding, flat=False) == Sharding(
        Mesh(4, "tp"), ("tp",), splits={0: Split(segments=2)}
    )


def test_without_a_mesh_axis_other_axes_are_cut_as_before() -> None:
    mesh, fused = Mesh((2, 2), ("a", "b")), Split(segments=2)
    both = Sharding(mesh, ("a", "b"), splits={0: Split(unit=4), 1: fused})
    assert both.without("a") == Sharding(mesh, (None, "b"), splits={1: fused})


def test_what_is_stored_flat_stays_so_as_long_as_it_is_cut() -> None:
    mesh = Mesh((2, 2), ("a", "b"))
    flat = Sharding(mesh, [("a", "b")], flat=True)
    assert flat.without("b") == Sharding(mesh, ["a"], flat=True)
    assert flat.without("a", "b") == Sharding(mesh, [None])


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "n", "message"),
    [
        (Split(rule="even"), 6, r"cannot shard axis 0 = 6 into 4: parts would differ\. Clean cut"
                                r"s: 1, 2, 3, 6; or name a rule for uneven parts, such as 'b"),
        (Split(rule="even", segments=(6, 6)), 12, r"cannot shard axis 0 = 6 into 4 \(a segment\)"),
        (Split(rule="even", unit=4), 24, r"the cut at 6 falls inside a unit of 4\. Clean cuts: 1, "
                                         r"2, 3, 6"),
        (Split(rule="even", unit=4), 26, r"into 4: parts would differ\. Clean cuts: none in units "
                                         r"of 4; or name a rule"),
        (Split(rule="even", unit=2), 14, r"into 4: parts would differ\. Clean cuts: 1, 7; or name"),
        (Split(sizes=(1, 2, 3, 0)), 7, r"into 4: sizes \(1, 2, 3, 0\) are 4 parts of 6"),
        (Split(sizes=(1, 2, 3)), 6, r"into 4: sizes \(1, 2, 3\) are 3 parts of 6"),
        (Split(sizes=(1, 2, 1, 2), unit=2), 6, r"the cut at 1 falls inside a unit of 2"),
        (Split(segments=(2, 3)), 6, r"segments: \(2, 3\) add up to 5; axis 0 is 6"),
        (Split(copies=3), 6, r"copies: 3; 4 ranks do not divide into groups of 3, they do into gr"
                             r"oups of 1, 2, 4"),
    ],
)  # fmt: skip
def test_a_cut_that_cannot_be_says_which_could(split: Split, n: int, message: str) -> None:
    sharding = Sharding(Mesh(4, "tp"), ("tp",), splits={0: split})
    with pytest.raises(SizeError, match=message):
        sharding.owned(0, (n,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": 0}, "unit: 0; wanted at least 1"),
        ({"sizes": (1,), "rule": "even"}, r"sizes: \(1,\) say every part; leave rule and segments"),
        ({"sizes": (1,), "segments": 2}, r"sizes: \(1,\) say every part; leave rule and segments"),
        ({"unit": (1, 2)}, r"unit: \(1, 2\); wanted one number, or one for each segment"),
        ({"copies": (1, 2)}, r"copies: \(1, 2\); wanted one number, or one for each segment"),
        ({"copies": (1, 0), "segments": (2, 2)}, r"^copies: 0; wanted at least 1"),
        ({"unit": (1, 0), "segments": (2, 2)}, r"^unit: 0; wanted at least 1"),
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(options: dict, message: str) -> None:
    with pytest.raises(SizeError, match=message):
        Split(**options)


def test_a_rule_that_is_not_known_is_refused() -> None:
    wanted = "^rule: 'chunk'; wanted one of 'ceil', 'flat_ceil', 'balanced', 'even'$"
    with pytest.raises(LayoutError, match=wanted):
        Split(rule="chunk")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": 1.5}, "unit: 1.5 is a float; wanted an int"),
        ({"sizes": 3}, "sizes: 3; wanted a sequence of ints"),
        ({"segments": 2.0}, "segments: 2.0 is a float; wanted an int"),
        ({"segments": (2, 0.5)}, r"segments: \(2, 0.5\); wanted a sequence of ints"),
        ({"copies": None}, "copies: None is a NoneType; wanted an int"),
        ({"pad": "x"}, "pad: 'x'; wanted True or False"),
    ],
)
def test_a_rule_of_other_than_ints_is_refused(options: dict, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}$"):
        Split(**options)


def test_the_integers_of_numpy_are_as_good_as_ours() -> None:
    two, both = np.int64(2), np.array([2, 4])
    for theirs, ours in (
        (Split(unit=two, segments=two, copies=two), Split(unit=2, segments=2, copies=2)),
        (Split(segments=both, copies=both), Split(segments=(2, 4), copies=(2, 4))),
        (Split(sizes=both), Split(sizes=(2, 4))),
    ):
        assert (hash(theirs), repr(theirs)) == (hash(ours), repr(ours))
        assert theirs == ours


def test_a_mesh_has_one_name_for_each_axis() -> None:
    with pytest.raises(SizeError, match=r"names: \('a', 'a'\); wanted 2 different names, one for"):
        Mesh((2, 2), ("a", "a"))
    with pytest.raises(SizeError, match=r"names: \('a',\); wanted 2 different names, one for each"):
        Mesh((2, 2), "a")
    with pytest.raises(SizeError, match=r"shape: \(0,\) has no ranks; every axis needs at least 1"):
        Mesh(0, "a")
    with pytest.raises(SizeError, match=r"rank: 4; the mesh \(a=4\) has ranks 0 to 3"):
        Mesh(4, "a").coordinates(4)
    with pytest.raises(SizeError, match=r"rank: -1; the mesh \(a=4\) has ranks 0 to 3"):
        Mesh(4, "a").coordinates(-1)
    for names, shown in ((None, "None"), (("a", 3), r"\('a', 3\)")):
        with pytest.raises(TypeError, match=f"^names: {shown}; wanted one str for each axis$"):
            Mesh(2, names)  # type: ignore[arg-type]


@pytest.mark.parametrize(("rank", "kind"), [("1", "str"), (1.5, "float"), (True, "bool")])
def test_a_rank_is_an_int(rank: object, kind: str) -> None:
    sharding = Sharding(Mesh(4, "tp"), ("tp",))
    with pytest.raises(TypeError, match=f"^rank: {rank!r} is a {kind}; wanted an int$"):
        sharding.owned(rank, (10,))  # type: ignore[arg-type]


def test_a_spec_names_axes_that_are_there_and_each_once() -> None:
    mesh = Mesh((2, 2), ("dp", "tp"))
    with pytest.raises(AxisError, match="mesh axis 'tp' is used twice; it can cut one axis once"):
        Sharding(mesh, ("tp", "tp"))
    with pytest.raises(AxisError, match="for a flat array, which has one axis"):
        Sharding(mesh, ("tp", "dp"), flat=True)
    with pytest.raises(SizeError, match=r"splits: axis 1 is not cut by the spec \(\('tp',\),\)"):
        Sharding(mesh, ("tp",), splits={1: Split(unit=2)})
    with pytest.raises(
        SizeError, match=r"splits: axis 0 is not cut by the spec \(\(\), \('tp',\)\)"
    ):
        Sharding(mesh, (None, "tp"), splits={0: Split(unit=2)})
    with pytest.raises(TypeError, match="spec: 'tp' is a string; wanted one entry for each array"):
        Sharding(mesh, "tp")
    with pytest.raises(ShapeError, match=r"shape: \(4,\) has 1 axes; the sharding \(-, tp\)"):
        Sharding(mesh, (None, "tp")).owned(0, (4,))


@pytest.mark.parametrize("kind", [set, frozenset])
def test_names_in_a_set_are_refused_since_every_process_would_order_them_anew(kind: Any) -> None:
    mesh, names = Mesh((2, 2), ("dp", "tp")), kind(("dp", "tp"))
    with pytest.raises(TypeError, match=r"^names: .*'tp'.*; a set has no order: wanted a tuple or"):
        Mesh((2, 2), names)
    for spec in (names, (names,), [None, names]):
        with pytest.raises(TypeError, match=r"^spec: .*'tp'.*; a set has no order: wanted tuples"):
            Sharding(mesh, spec)
