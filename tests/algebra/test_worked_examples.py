"""Worked examples: layouts of real models, down to their loops (n, in stride, out stride)."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise

import numpy as np
import pytest

import xlayout as xl
from xlayout.algebra import Layout, Piece, partition
from xlayout.errors import SizeError
from xlayout.lower.relayout import program_of


def traffic(layout: Layout, sources: list[int], targets: list[int]) -> list[list[int]]:
    """How many elements go from each stretch of the inputs to each stretch of the outputs."""
    ins = list(pairwise(accumulate([0, *sources])))
    outs = list(pairwise(accumulate([0, *targets])))
    return [[sum(p.size for p in layout.between(i, o)) for o in outs] for i in ins]


def concatenated(layout: Layout, *shape: int) -> Layout:
    """The outputs, one after the other, as one array."""
    return layout.regrouped(out_shapes=[shape])


# -- gate and up -----------------------------------------------------------------------------------

GLU = xl.interleave.layout((24, 3))


def test_glu_interleave_is_one_piece_in_runs_of_a_row() -> None:
    assert GLU.pieces == (Piece(0, 0, ((12, 3, 6), (2, 36, 3), (3, 1, 1))),)
    assert str(GLU) == "(a=2 b=12) c=3 -> (b a) c"
    assert GLU.as_view() is None
    assert GLU.cost(1).run == 3


def test_its_inverse_is_the_columns_swapped() -> None:
    assert GLU.inverse().pieces == (Piece(0, 0, ((2, 3, 36), (12, 6, 3), (3, 1, 1))),)
    assert (GLU >> GLU.inverse()).is_identity


def test_deinterleaving_on_four_ranks_moves_54_of_72() -> None:
    back = GLU.inverse()
    moved = traffic(back, [18] * 4, [18] * 4)
    assert moved == [[9, 0, 9, 0], [9, 0, 9, 0], [0, 9, 0, 9], [0, 9, 0, 9]]
    assert sum(map(sum, moved)) - sum(moved[r][r] for r in range(4)) == 54
    assert back.between((0, 18), (36, 54)) == (Piece(3, 0, ((3, 6, 3), (3, 1, 1))),)


def test_a_shard_of_gate_and_up_is_local_where_the_ranks_divide_each() -> None:
    back = xl.deinterleave.layout((24,))
    per_segment = back >> xl.regroup.layout((24,), sizes=(12, 12), groups=4)
    assert traffic(per_segment, [6] * 4, [6] * 4) == (np.eye(4, dtype=int) * 6).tolist()


@pytest.mark.parametrize(("half", "ranks"), [(3, 2), (6, 4)])
def test_ranks_that_divide_only_the_sum_are_refused(half: int, ranks: int) -> None:
    assert 2 * half % ranks == 0
    with pytest.raises(
        SizeError, match=rf"segment 0 = {half} does not divide into groups = {ranks}"
    ):
        xl.regroup.layout((2 * half,), sizes=(half, half), groups=ranks)


# -- fused queries, keys and values ----------------------------------------------------------------

SPLIT = concatenated(xl.split_qkv.layout((160, 5), heads=12, kv_heads=4), 160, 5)


def test_megatron_qkv_is_two_pieces() -> None:
    assert SPLIT.pieces == (
        Piece(0, 0, ((4, 200, 120), (120, 1, 1))),
        Piece(120, 480, ((2, 40, 160), (4, 200, 40), (40, 1, 1))),
    )
    swapped = tuple(p.inverse() for p in SPLIT.pieces)
    assert set(SPLIT.inverse().pieces) == set(swapped)


def test_megatron_qkv_without_groups_is_one_piece() -> None:
    split = xl.split_qkv.layout((96, 5), heads=4, kv_heads=4)
    assert len(concatenated(split, 96, 5).pieces) == 1


def test_rope_is_the_permute_of_hugging_face() -> None:
    rope = xl.rope_halves.layout((96, 5), heads=12)
    assert rope.pieces == (Piece(0, 0, ((12, 40, 40), (2, 5, 20), (4, 10, 5), (5, 1, 1))),)
    w = np.arange(96 * 5).reshape(96, 5)
    permuted = w.reshape(12, 96 // 12 // 2, 2, 5).swapaxes(1, 2).reshape(96, 5)
    assert rope.index().tolist() == permuted.ravel().tolist()


def test_megatron_qkv_then_rope_is_three_pieces_and_one_pass() -> None:
    rope = Layout.parse("(n half two + v) h -> (n two half + v) h", None,
                        n=12 + 4, half=4, two=2, v=32, h=5)  # fmt: skip
    both = SPLIT >> rope
    assert len(both.pieces) == 3
    assert both.cost(2).bytes_read == both.cost(2).bytes_written == 160 * 5 * 2

    w = np.arange(160 * 5).reshape(160, 5)
    groups = w.reshape(4, 5, 8, 5)
    q, k, v = groups[:, :3].reshape(12, 8, 5), groups[:, 3], groups[:, 4]
    halves = [t.reshape(-1, 4, 2, 5).swapaxes(1, 2).reshape(-1, 5) for t in (q, k)]
    assert both(w).tolist() == np.concatenate([*halves, v.reshape(-1, 5)]).tolist()


@pytest.mark.parametrize("ranks", [2, 4])
def test_grouped_qkv_is_local_where_the_ranks_divide_the_groups(ranks: int) -> None:
    per_segment = xl.regroup.layout((160,), sizes=(96, 32, 32), groups=ranks).lift(after=5)
    share = [160 * 5 // ranks] * ranks
    moved = traffic(SPLIT >> per_segment, share, share)
    assert moved == (np.eye(ranks, dtype=int) * share[0]).tolist()


def test_fewer_groups_than_ranks_gives_row_intervals() -> None:
    split = concatenated(xl.split_qkv.layout((80, 5), heads=6, kv_heads=2), 80, 5)
    rows = [
        [
            (p.out_offset // 5, p.size // 5)
            for p in split.between((100 * r, 100 * r + 100), (0, 400))
        ]
        for r in range(4)
    ]
    assert rows == [[(0, 20)], [(20, 4), (48, 16)], [(24, 20)], [(44, 4), (56, 16)]]


# -- tiles, shards and transposes ------------------------------------------------------------------


def test_uneven_columns_are_two_pieces() -> None:
    tiles = xl.to_tiles.layout((6, 10), grid=(1, 4))
    assert [s[1] for s in tiles.out_shapes] == [3, 3, 2, 2]
    assert tiles.pieces == (
        Piece(0, 0, ((2, 3, 18), (6, 10, 3), (3, 1, 1))),
        Piece(6, 36, ((2, 2, 12), (6, 10, 2), (2, 1, 1))),
    )
    assert (tiles >> tiles.inverse()).is_identity


def test_uneven_rows_to_uneven_columns() -> None:
    columns = xl.to_tiles.layout((10, 3), grid=(1, 4), rule="ceil")
    rows = [3 * n for n in partition(10, 4, rule="ceil")]
    assert traffic(columns, rows, [math.prod(s) for s in columns.out_shapes]) == [
        [3, 3, 3, 0],
        [3, 3, 3, 0],
        [3, 3, 3, 0],
        [1, 1, 1, 0],
    ]


def test_a_transpose_is_a_view_until_its_axes_are_merged() -> None:
    swap = xl.matrix_transpose.layout((4, 6))
    assert swap.pieces == (Piece(0, 0, ((6, 1, 4), (4, 6, 1))),)
    assert swap.as_view() == (0, (1, 6))
    assert swap.regrouped(out_shapes=[(24,)]).as_view() is None


def test_the_order_of_shards_on_a_mesh_is_a_permutation_of_its_digits() -> None:
    order = Layout.parse("(data tensor) -> (tensor data)", None, data=2, tensor=2)
    assert order.index().tolist() == [0, 2, 1, 3]


def test_what_is_one_pass_has_one_read_of_its_input() -> None:
    both = GLU >> xl.matrix_transpose.layout((24, 3))
    program = program_of(both)
    assert [verb for verb, _, _ in program.steps] == ["reshape", "permute", "reshape"]
