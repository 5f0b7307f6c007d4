"""Laws between the named ops, each of which is another reading of the same few maps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import xlayout as xl
from xlayout.algebra import Layout
from xlayout.errors import SizeError

small = st.integers(1, 6)
INVERSES = [(xl.interleave, xl.deinterleave), (xl.rope_halves, xl.rope_pairs)]


@given(small, small, small)
def test_interleave_is_regroup_of_two_halves(block: int, n: int, width: int) -> None:
    half = block * n
    shape = (2 * half, width)
    assert xl.interleave.layout(shape, block=block) == xl.regroup.layout(
        shape, sizes=(half, half), groups=n
    )


@given(small, small, small, st.integers(1, 4))
def test_interleave_is_split_and_permute(groups: int, n: int, block: int, width: int) -> None:
    text = "(g n k) w -> (n g k) w"
    assert xl.interleave.layout((groups * n * block, width), groups=groups, block=block) == (
        Layout.parse(text, None, g=groups, n=n, k=block, w=width)
    )


@given(small, small)
def test_rope_halves_is_deinterleave_per_head(heads: int, half: int) -> None:
    per_head = xl.deinterleave.layout((2 * half,)).lift(before=(heads,))
    flat = [(heads * 2 * half,)]
    assert xl.rope_halves.layout(flat[0], heads=heads) == per_head.regrouped(flat, flat)


@given(small, small, small)
def test_grouped_qkv_is_regroup_of_the_three(kv_heads: int, per_group: int, d: int) -> None:
    heads = kv_heads * per_group
    sizes = (heads * d, kv_heads * d, kv_heads * d)
    fused = xl.fuse_qkv.layout(*((n,) for n in sizes), heads=heads, kv_heads=kv_heads)
    whole = xl.regroup.layout((sum(sizes),), sizes=sizes, groups=kv_heads)
    assert fused == whole.regrouped(in_shapes=[(n,) for n in sizes])


@given(small, small)
def test_per_head_is_grouped_with_a_group_per_head(heads: int, d: int) -> None:
    shapes = ((heads * d,),) * 3
    per_head = xl.fuse_qkv.layout(*shapes, heads=heads, kv_heads=heads, order="per_head")
    assert per_head == xl.fuse_qkv.layout(*shapes, heads=heads, kv_heads=heads, order="grouped")


@given(st.sampled_from(["concat", "per_head", "grouped", "codegen"]), small, small, small)
def test_split_qkv_undoes_fuse_qkv(order: str, groups: int, per_group: int, d: int) -> None:
    heads = groups * per_group
    kv_heads = heads if order == "per_head" else groups
    options = {"heads": heads, "kv_heads": kv_heads, "order": order, "blocks": groups}
    split = xl.split_qkv.layout(((heads + 2 * kv_heads) * d, 2), **options)
    fused = xl.fuse_qkv.layout(*split.out_shapes, **options)
    assert fused == split.inverse()
    assert (split >> fused).is_identity


@pytest.mark.parametrize(("there", "back"), INVERSES)
@given(n=small, part=small, width=small)
def test_the_inverse_op_is_the_inverse_layout(
    there: xl.interleave, back: xl.deinterleave, n: int, part: int, width: int
) -> None:
    shape = (2 * n * part, width)
    options = {"heads": n} if there is xl.rope_halves else {"block": n}
    assert back.layout(shape, **options) == there.layout(shape, **options).inverse()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), small)
def test_ungroup_undoes_regroup(parts: list[int], groups: int) -> None:
    sizes = [n * groups for n in parts]
    options = {"sizes": sizes, "groups": groups}
    shape = (sum(sizes), 2)
    assert xl.ungroup.layout(shape, **options) == xl.regroup.layout(shape, **options).inverse()


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), small, small)
def test_regrouping_for_another_number_of_ranks(parts: list[int], few: int, many: int) -> None:
    sizes = [n * few * many for n in parts]
    shape = (sum(sizes),)
    apart = xl.ungroup.layout(shape, sizes=sizes, groups=few)
    again = apart >> xl.regroup.layout(shape, sizes=sizes, groups=many)
    assert xl.regroup.layout(shape, sizes=sizes, groups=few) >> again == (
        xl.regroup.layout(shape, sizes=sizes, groups=many)
    )


def shard(layout: Layout, segments: int, ranks: int, rank: int) -> Layout:
    """What `rank` holds of the output if each of its segments is cut into `ranks`."""
    n = layout.out_size
    cut = xl.regroup.layout((n,), sizes=[n // segments] * segments, groups=ranks)
    return layout >> cut >> Layout.slice((n,), rank * n // ranks, (rank + 1) * n // ranks)


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4))
def test_interleaving_a_shard_is_sharding_the_interleaved(
    half: int, ranks: int, block: int
) -> None:
    """Cut gate and up by `ranks`, then interleave = interleave, then cut, iff F % (N * k) == 0."""
    half, n = half * block, 2 * half * block
    whole = xl.interleave.layout((n,), block=block)
    holds = half % (ranks * block) == 0
    if n % ranks:
        assert not holds
        return
    try:
        local = xl.interleave.layout((n // ranks,), block=block)
        first = [shard(Layout.identity(n), 2, ranks, rank) >> local for rank in range(ranks)]
    except SizeError:
        assert not holds
        return
    assert ([shard(whole, 1, ranks, rank) for rank in range(ranks)] == first) == holds


@given(small, small, small, st.integers(0, 2))
def test_stack_is_a_new_axis(a: int, b: int, count: int, axis: int) -> None:
    names = ["a", "b"]
    names.insert(axis, "n")
    inputs = ", ".join(f"{' '.join(names[:axis])} s{k} {' '.join(names[axis + 1 :])}"
                       for k in range(count))  # fmt: skip
    summed = " ".join(
        f"({' + '.join(f's{k}' for k in range(count))})" if name == "n" else name for name in names
    )
    ones = {f"s{k}": 1 for k in range(count)}
    written = Layout.parse(f"{inputs} -> {summed}", None, a=a, b=b, **ones)
    stacked = xl.stack.layout([(a, b)] * count, axis=axis)
    assert stacked == written.regrouped(in_shapes=[(a, b)] * count)
    assert xl.unstack.layout(stacked.out_shape, axis=axis) == stacked.inverse()


@given(small, small, st.integers(0, 5), st.integers(0, 1))
def test_trim_undoes_pad(a: int, b: int, more: int, axis: int) -> None:
    padded = xl.pad.layout((a, b), to=(a, b)[axis] + more, axis=axis)
    trimmed = xl.trim.layout(padded.out_shape, to=(a, b)[axis], axis=axis)
    assert trimmed == padded.inverse()
    assert (padded >> trimmed).is_identity


@given(small, small, st.integers(1, 3), st.integers(1, 3), st.sampled_from(["balanced", "back"]))
def test_tiles_follow_the_partition(h: int, w: int, rows: int, columns: int, rule: str) -> None:
    tiles = xl.to_tiles.layout((h, w), grid=(rows, columns), rule=rule)
    heights = xl.partition(h, rows, rule=rule)
    widths = xl.partition(w, columns, rule=rule)
    assert tiles.out_shapes == tuple((a, b) for a in heights for b in widths)
    nested = [tiles.out_shapes[k * columns : (k + 1) * columns] for k in range(rows)]
    assert xl.from_tiles.layout(nested) == tiles.inverse()


@given(small, small, small)
def test_matrix_transpose_swaps_the_last_two_axes(a: int, b: int, c: int) -> None:
    swap = xl.matrix_transpose.layout((a, b, c))
    assert swap == xl.permute_dims.layout((a, b, c), (0, 2, 1))
    assert (swap >> xl.matrix_transpose.layout((a, c, b))).is_identity
