"""Who sends what several hold, and what is sent once though it is wanted several times."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import xlayout as xl
from xlayout import Layout, Mesh, Piece, Sharding, Split, plan_reshard
from xlayout.shard.owners import Region, sender


@pytest.mark.parametrize(
    ("shape", "owners", "rank", "wanted"),
    [
        ((4,), (2,), 0, 2),  # the only one
        ((4,), (0, 1, 2), 1, 1),  # itself
        ((4,), (0, 1, 2), 3, 0),  # of equally near ones, the next in the ring
        ((4,), (1, 2, 3), 0, 1),
        ((4,), (0, 1), 2, 0),
        ((2, 3), (0, 4), 1, 4),  # at the same place along one mesh axis
        ((2, 3), (1, 3), 4, 1),
        ((2, 3), (3, 5), 2, 5),  # though another follows in the ring
    ],
)
def test_an_owner_is_the_nearest(
    shape: tuple[int, ...], owners: tuple[int, ...], rank: int, wanted: int
) -> None:
    mesh = Mesh(shape, tuple("ab"[: len(shape)]))
    assert sender(mesh, Region(0, ((range(4),),), owners), rank) == wanted


@pytest.mark.parametrize(
    ("first", "second", "sent"),
    [
        (Piece(0, 0, ((3, 1, 1),)), Piece(1, 3, ((3, 1, 1),)), [0, 1, 2, 3]),
        (Piece(0, 0, ((2, 1, 1),)), Piece(0, 2, ((4, 1, 1),)), [0, 1, 2, 3]),  # from one place
        (Piece(0, 0, ((3, 1, 1),)), Piece(0, 3, ((3, 2, 1),)), [0, 1, 2, 4]),  # and with gaps
    ],
)
def test_what_is_wanted_in_overlapping_boxes_is_sent_once(
    first: Piece, second: Piece, sent: list[int]
) -> None:
    layout = Layout([(12,)], [(6,)], [first, second])
    mesh = Mesh(2, "tp")
    plan = plan_reshard(layout, Sharding(mesh, ("tp",)), Sharding(mesh, (None,)))
    (message,) = [m for m in plan.messages if m.is_remote]
    assert (message.src, message.dst, message.elements) == (0, 1, len(sent))
    assert message.pack.index().tolist() == sent
    assert plan.recv_bytes == plan.lower_bound == (0, len(sent))
    assert plan.simulate(np.arange(12)).tolist() == layout.index().tolist()


def test_elements_of_overlapping_boxes_travel_in_the_order_of_their_places() -> None:
    pieces = [Piece(33, 0, ((2, 1, 1),)), Piece(2, 2, ((2, 32, 1),)), Piece(40, 4, ((2, 8, 1),))]
    src, dst = (Sharding(Mesh(2, "tp"), ("tp",), splits={0: sizes}) for sizes in ((64, 0), (0, 6)))
    plan = plan_reshard(Layout([(64,)], [(6,)], pieces), src, dst)
    (message,) = plan.messages
    assert message.pack.index().tolist() == [2, 33, 34, 40, 48]
    assert message.pack >> message.unpack == message.block


@pytest.mark.parametrize("uneven", [0, 1])
def test_arrays_are_joined_of_which_one_is_held_by_uneven_groups(uneven: int) -> None:
    mesh, splits = Mesh(4, "tp"), {0: Split(copies=2)}
    src = [Sharding(mesh, ("tp",)) for _ in range(2)]
    src[uneven] = Sharding(mesh, ("tp",), splits=splits)
    shapes = [(8,), (8,)]
    shapes[uneven] = (5,)  # two ranks hold three, the others two
    joined = Layout.concat(shapes)
    plan = plan_reshard(joined, tuple(src), Sharding(mesh, (None,)))
    xs = [np.arange(8), 10 + np.arange(8)]
    xs[uneven] = xs[uneven][:5]
    assert plan.simulate(xs).tolist() == np.concatenate(xs).tolist()
    held = [sum(s.local_shape(r, n)[0] for s, n in zip(src, shapes, strict=True)) for r in range(4)]
    assert plan.recv_bytes == tuple(13 - n for n in held)


@pytest.mark.parametrize(("shape", "copies"), [((2, 3), 2), ((3, 2), 3), ((2, 4), 2)])
@pytest.mark.parametrize("spec", [(None,), ("a",), ("b",)])
def test_groups_that_hold_the_same_may_lie_across_mesh_axes(
    shape: tuple[int, int], copies: int, spec: tuple[str | None]
) -> None:
    mesh, n = Mesh(shape, ("a", "b")), 24
    groups = Sharding(mesh, (("a", "b"),), splits={0: Split(copies=copies)})
    for src, dst in ((groups, Sharding(mesh, spec)), (Sharding(mesh, spec), groups)):
        plan = plan_reshard(Layout.identity((n,)), src, dst)
        assert plan.simulate(np.arange(n)).tolist() == list(range(n))
        assert plan.recv_bytes == plan.lower_bound


@pytest.mark.parametrize("rule", ["ceil", "flat_ceil", "balanced"])
@pytest.mark.parametrize("counts", [(2,), (4,), (2, 3)])
@pytest.mark.parametrize("segments", [2, 3])
@pytest.mark.parametrize("unit", [1, 2, 3])
def test_a_number_of_segments_is_cut_by_the_rule_in_each(
    rule: Any, counts: tuple[int, ...], segments: int, unit: int
) -> None:
    for size in range(1, 15):
        by_number, by_sizes = (
            Split(rule=rule, unit=unit, segments=given) for given in (segments, (size,) * segments)
        )
        for place in itertools.product(*map(range, counts)):
            held = by_number.runs(size * segments, counts, place)
            assert held == by_sizes.runs(size * segments, counts, place)


def test_of_no_arrays_nothing_is_resharded() -> None:
    with pytest.raises(xl.ShapeError, match=r"^x: no arrays; give at least one$"):
        xl.reshard([], Sharding(Mesh(2, "tp"), ()))


@pytest.mark.parametrize("gathers", [False, True])
def test_blocks_in_reverse_are_copied_with_steps_forward(gathers: bool) -> None:
    """Memory has no views with negative strides in torch."""
    mesh, pieces = Mesh(4, "tp"), [Piece(2 * k, 6 - 2 * k, ((2, 1, 1),)) for k in range(4)]
    alone = Sharding(mesh, ("tp",), splits={0: (8, 0, 0, 0)})
    sides = [Sharding(mesh, ("tp",)), alone]
    plan = plan_reshard(Layout([(8,)], [(8,)], pieces), *(sides if gathers else sides[::-1]))
    part = plan.part(0)
    for layout in (part.pack, part.unpack):
        assert all(x >= 0 and z > 0 for piece in layout.pieces for _, x, z in piece.loops)
    assert plan.simulate(np.arange(8)).tolist() == [6, 7, 4, 5, 2, 3, 0, 1]
