"""Every op on four ranks is bit for bit the op on one, and so are its gradients, compiled too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.shard import on_ranks_ops
from tests.shard.compilers import Aot, Inductor
from tests.shard.ops import OPS, REPEATS, Spec
from tests.shard.pool import Pool
from xlayout.shard import Mesh, Sharding

pytestmark = pytest.mark.distributed

GRID = Mesh((2, 2), ("dp", "tp"))
LINE = Mesh((1, 4), ("dp", "tp"))


@pytest.mark.parametrize("on", [GRID, LINE], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_values_and_gradients_are_those_of_one_rank(ranks: Pool, name: str, on: Mesh) -> None:
    for told in (False, True):
        answers = ranks(on_ranks_ops.compared, name, on, told, False)
        assert answers == [(True, True, True)] * 4


SEVERAL = ["fuse_qkv by groups", "fuse_qkv one after the other", "split_qkv", "stack", "unstack",
           "rope_halves", "rearrange, into axes", "apply"]  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_compiled_they_are_the_same(ranks: Pool, name: str) -> None:
    answers = ranks(on_ranks_ops.compared, name, GRID, True, True)
    assert answers == [(True, True, True)] * 4


def test_holes_are_constant_in_second_derivatives(ranks: Pool) -> None:
    assert ranks(on_ranks_ops.second_derivative, LINE) == [True] * 4


@pytest.mark.parametrize("name", on_ranks_ops.UNEVEN)
def test_derivatives_of_any_order_are_those_of_one_rank(ranks: Pool, name: str) -> None:
    """DTensor gives gradients of uneven parts other placements, and brings them back unseen."""
    for on in (LINE, GRID):
        assert ranks(on_ranks_ops.derivatives, name, on) == [[True] * 3] * 4


def test_an_axis_of_one_element_may_be_cut(ranks: Pool) -> None:
    lie = ["(('tp',),)", "()", "(('tp',),)", "((), ('tp',))"]
    assert ranks(on_ranks_ops.of_one_element, LINE) == [lie] * 4


@pytest.mark.parametrize("spec", [("tp",), (None, "tp"), ("dp", "tp"), ()], ids=str)
@pytest.mark.parametrize("comm", ["auto", "native"])
def test_arrays_of_no_elements_do_not_hang(ranks: Pool, comm: str, spec: Spec) -> None:
    assert ranks(on_ranks_ops.of_no_elements, GRID, comm, spec) == [[True] * 5] * 4


def test_a_dtype_that_no_collective_takes_comes_apart_all_the_same(ranks: Pool) -> None:
    names = ("int16", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "bfloat16")
    assert ranks(on_ranks_ops.of_dtypes, LINE, names) == [[]] * 4


def test_the_first_op_on_a_mesh_may_be_a_compiled_one(ranks: Pool) -> None:
    assert all(ranks(on_ranks_ops.at_once, Mesh(4, "alone")))


def test_holes_are_filled_in_inference_mode_too(ranks: Pool) -> None:
    assert all(ranks(on_ranks_ops.inferred, LINE))


@pytest.mark.parametrize(("on", "by"), [(LINE, "tp"), (GRID, ("dp", "tp"))], ids=str)
def test_an_axis_that_is_cut_unevenly_may_be_regrouped(
    ranks: Pool, on: Mesh, by: str | tuple[str, ...]
) -> None:
    assert ranks(on_ranks_ops.of_uneven, on, by) == [[True, True, True]] * 4


@pytest.mark.parametrize("order", [(2, 0, 3, 1), (2, 3, 0, 1)], ids=str)
@pytest.mark.parametrize("on", [LINE, GRID, Mesh(4, "tp")], ids=str)
def test_the_ranks_of_a_mesh_may_be_in_any_order(ranks: Pool, on: Mesh, order: Any) -> None:
    assert ranks(on_ranks_ops.out_of_order, on, order) == [True] * 4


@pytest.mark.parametrize("on", [Mesh(4, "tp"), GRID], ids=str)
@pytest.mark.parametrize(("parts", "size"), [(3, 48), (2, 8)])
def test_segments_are_regrouped_which_torch_itself_mixes_up(
    ranks: Pool, on: Mesh, parts: int, size: int
) -> None:
    for pattern in ("(a b) -> a b", "(a b) -> b a"):
        assert ranks(on_ranks_ops.of_other_axes, on, parts, size, pattern) == [True] * 4


def test_segments_may_be_cut_by_several_mesh_axes(ranks: Pool) -> None:
    assert ranks(on_ranks_ops.of_segments, GRID) == [True] * 4


ENDS: list[tuple[Spec, Spec]] = [
    (("tp",), ()), ((), ("tp",)), (("dp",), ("tp",)), (("dp", "tp"), ("tp", "dp")),
    ((("tp", "dp"),), ("dp",)), ((None, "tp"), (("dp", "tp"),)),
]  # fmt: skip


@pytest.mark.parametrize("compiler", [None, Aot], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", REPEATS)
def test_the_gradient_of_what_repeats_elements_is_a_sum(
    ranks: Pool, name: str, compiler: Any
) -> None:
    for src, dst in ENDS[2:] if compiler else ENDS:
        layout = REPEATS[name]
        ins = [Sharding(GRID, spec) for spec in (src, dst)][: len(layout.in_shapes)]
        outs = [Sharding(GRID, spec) for spec in (dst, src)][: len(layout.out_shapes)]
        for answer in ranks(on_ranks_ops.repeated, name, ins, outs, compiler):
            assert all(answer), (src, dst)


def test_a_gradient_of_zeros_is_sent_in_the_backward_pass(ranks: Pool) -> None:
    """Inductor has constants made and sent ahead; other ranks would not be there to hear them."""
    rows, others = ([Sharding(GRID, spec)] for spec in (("dp",), ("tp",)))
    for answer in ranks(on_ranks_ops.repeated, "heads", rows, others, Inductor):
        assert all(answer)


def test_where_nothing_moves_no_gradient_does(ranks: Pool) -> None:
    assert ranks(on_ranks_ops.repeated_alone, GRID) == [{}] * 4
