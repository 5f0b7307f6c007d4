"""A cast goes before its gather where nothing can tell the difference, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tests.shard.graphs import OPS, RANKS, Alone, gathered, gathers, traced
from xlayout.algebra import Layout
from xlayout.lower.linear import form_of
from xlayout.torch import CastBeforeGather
from xlayout_torch import operation  # noqa: F401 -- defines the operation

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
aten = torch.ops.aten


def shard(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def bits(x: torch.Tensor) -> torch.Tensor:
    # Cloned, because a contiguous array with one column may have any stride along it.
    return x.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def run(graph: GraphModule, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
    made = Alone(graph).run(*arrays)
    return made if isinstance(made, tuple) else (made,)


def owners(results: tuple[torch.Tensor, ...]) -> list[int]:
    return [r.untyped_storage().data_ptr() for r in results]


def check(
    fn: Callable[..., Any], *arrays: torch.Tensor, narrowed: int = 1, to: torch.dtype = BF16
) -> GraphModule:
    """Check that `narrowed` gathers narrow; results keep bits, dtype, strides and own memory."""
    graph = traced(fn, *arrays)
    before, count = run(graph, *arrays), len(gathers(graph))
    assert CastBeforeGather()(graph) == narrowed
    assert gathers(graph).count(to) == narrowed
    assert len(gathers(graph)) == count
    after = run(graph, *arrays)
    for wanted, got in zip(before, after, strict=True):
        assert (got.dtype, got.shape, got.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
        assert torch.equal(bits(got), bits(wanted))
    assert len(set(owners(after))) == len(set(owners(before)))
    for node in graph.graph.nodes:  # what later passes read is what runs
        value = node.meta.get("val")
        if node.target is OPS.wait_tensor.default:
            assert value.dtype == gathers(graph)[0]
    return graph


def halves(x: torch.Tensor) -> Any:
    """A transpose in two parts, as the single operation that large layouts compile to."""
    rows, columns = x.shape[0], x.numel() // x.shape[0]
    turned = Layout.permute((rows, columns), (1, 0))
    form = form_of(turned.regrouped([x.shape], [(columns, rows - 1), (columns, 1)]), False)
    return (x, x) if form is None else torch.ops.xlayout.relayout([x], form)


# -- movement: one function a step, on any array of at least two axes ---------------------------

STEPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transpose": lambda x: x.transpose(0, 1),
    "flatten": lambda x: x.reshape(1, -1),
    "split rows": lambda x: x.reshape(2, -1, *x.shape[1:]) if x.shape[0] % 2 == 0 else x,
    "slice rows": lambda x: x[1:],
    "every second column": lambda x: x[:, ::2],
    "select": lambda x: x[0][None],
    "expand": lambda x: x[None].expand(2, *x.shape),
    "chunks side by side": lambda x: torch.cat(x.chunk(2), 1) if x.shape[0] % 2 == 0 else x,
    "unbind and stack": lambda x: torch.stack(x.unbind(1), 0),
    "pad": lambda x: torch.nn.functional.pad(x, (0, 1)),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "take rows": lambda x: x.index_select(0, torch.tensor([1, 0], device=x.device)),
    "repeat": lambda x: x.repeat(*[1] * (x.ndim - 1), 2),
    "a layout": lambda x: torch.cat(halves(x), -1) if x.shape[0] > 1 else x,
    "contiguous": lambda x: x.contiguous(),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("dtype", [BF16, torch.float16], ids=str)
def test_a_cast_passes_whatever_only_moves(step: str, dtype: torch.dtype) -> None:
    check(lambda w: STEPS[step](gathered(w)).to(dtype), shard(2, 6), to=dtype)


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=4), st.integers(1, 3), st.data())
def test_a_cast_passes_any_chain_and_tree_of_movement(
    steps: list[str], branches: int, data: st.DataObject
) -> None:
    ends = [data.draw(st.sampled_from(sorted(STEPS))) for _ in range(branches)]

    def use(w: torch.Tensor) -> Any:
        x = gathered(w)
        for step in steps:
            x = STEPS[step](x) if min(x.shape[:2]) > 1 else x
        return tuple(STEPS[end](x).to(BF16) if min(x.shape[:2]) > 1 else x.to(BF16)
                     for end in ends)  # fmt: skip

    check(use, shard(4, 8))


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [(torch.float64, torch.float32), (torch.float32, FP8), (BF16, torch.float8_e5m2),
     (torch.int64, torch.int32), (torch.int32, torch.int8), (torch.float32, torch.bool)],
    ids=str,
)  # fmt: skip
def test_every_narrower_dtype_travels(wide: torch.dtype, narrow: torch.dtype) -> None:
    carried = narrow if narrow.itemsize > 1 else torch.uint8  # as bytes: transports lack some
    check(lambda w: gathered(w).t().to(narrow), shard(4, 6, dtype=wide), to=carried)


def test_every_collective_that_moves_is_a_gather() -> None:
    def two(w: torch.Tensor) -> Any:
        swapped = OPS.wait_tensor(OPS.all_to_all_single(w, [2, 2], [2, 2], "all"))
        sent = OPS.wait_tensor(OPS.broadcast(w, 0, "all"))
        return swapped.to(BF16), sent.to(BF16)

    graph, x = traced(two, shard(4, 6)), shard(4, 6)
    before = run(graph, x)
    assert CastBeforeGather()(graph) == 2
    assert all(map(torch.equal, before, run(graph, x)))


def test_gathers_that_follow_one_another_are_both_narrow() -> None:
    check(lambda w: gathered(gathered(w).t()).to(BF16), shard(2, 6), narrowed=2)


def test_gathers_that_meet_are_both_narrow() -> None:
    check(
        lambda w, v: torch.cat([gathered(w), gathered(v)]).to(BF16), shard(2, 6), shard(3, 6),
        narrowed=2,
    )  # fmt: skip


def test_each_result_of_a_layout_is_memory_of_its_own() -> None:
    check(lambda w: tuple(y.to(BF16) for y in halves(gathered(w))), shard(4, 6))


def test_what_meets_a_gather_is_cast_too() -> None:
    check(lambda w, v: torch.cat([gathered(w), v]).t().to(BF16), shard(2, 6), shard(3, 6))


def test_sizes_may_be_asked_and_left_open() -> None:
    def use(w: torch.Tensor) -> torch.Tensor:
        x = gathered(w)
        return x.reshape(x.shape[1], x.shape[0]).to(BF16)

    graph, x = traced(use, shard(2, 6), dynamic=True), shard(3, 5)
    before = run(graph, x)
    assert CastBeforeGather()(graph) == 1
    assert gathers(graph) == [BF16]
    assert all(map(torch.equal, before, run(graph, x)))


def test_a_view_of_the_cast_finds_the_strides_it_had() -> None:
    graph = check(lambda w: aten.view(gathered(w)[:, :3].to(BF16), [-1]), shard(2, 6))
    assert any(n.target is aten.clone.default for n in graph.graph.nodes)


def test_a_memory_format_is_kept() -> None:
    def use(w: torch.Tensor) -> torch.Tensor:
        x = gathered(w).reshape(2, 2, 2, 3)
        return aten._to_copy(x, dtype=BF16, memory_format=torch.channels_last)

    check(use, shard(2, 3))


def test_results_share_no_memory_that_they_did_not_share() -> None:
    check(lambda w: (gathered(w).to(BF16), gathered(w).t().to(BF16)), shard(2, 6), narrowed=2)

    def twice(w: torch.Tensor) -> Any:
        x = gathered(w)
        return x.to(BF16), x.t().to(BF16)

    check(twice, shard(2, 6))


def test_a_part_that_is_returned_does_not_keep_the_whole_alive() -> None:
    graph = check(lambda w: gathered(w)[:2].to(BF16), shard(2, 6))
    (part,) = run(graph, shard(2, 6))
    assert part.untyped_storage().nbytes() == part.nbytes


@pytest.mark.parametrize(
    "write",
    [lambda x: x.add_(1), lambda x: x.view(-1).zero_(), lambda x: torch.add(x, 1, out=x),
     lambda x: torch._foreach_mul_([x], 2), lambda x: x.as_strided((3,), (2,)).zero_()],
    ids=["in place", "through a view", "out", "among others", "through strides"],
)  # fmt: skip
def test_what_is_written_into_is_no_memory_of_others(write: Callable[[Any], Any]) -> None:
    def use(w: torch.Tensor) -> torch.Tensor:
        x = gathered(w)
        first, second = x.to(BF16), x[1:].to(BF16)
        write(first)
        return second.sum() + x.to(BF16).sum() * 3

    check(use, shard(2, 6))


# -- what keeps a gather wide --------------------------------------------------------------------


def doubled(w: torch.Tensor) -> torch.Tensor:
    return (gathered(w) * 2).to(BF16)


def mixed(w: torch.Tensor) -> torch.Tensor:
    return torch.cat([gathered(w), shard(1, 6, dtype=torch.float64)]).to(BF16)


def elsewhere(w: torch.Tensor) -> torch.Tensor:
    return aten._to_copy(gathered(w), dtype=BF16, device=torch.device("meta"))


KEPT: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "arithmetic in between": (doubled, "mul (aten.mul.Tensor) needs the wide elements"),
    "a wide use beside the cast": (
        lambda w: (gathered_once := gathered(w)).to(BF16).sum() + gathered_once.sum(),
        "(aten.sum.default) needs the wide elements"),
    "the wide whole returned": (
        lambda w: (lambda x: (x, x.to(BF16)))(gathered(w)), "what it gathers is returned as it is"),
    "casts that differ": (
        lambda w: (lambda x: (x.to(FP8), x.to(BF16)))(gathered(w)),
        "its casts differ: torch.bfloat16, torch.float8_e4m3fn"),
    "a cast that widens": (
        lambda w: gathered(w).to(torch.float64),
        "a cast from torch.float32 to torch.float64 does not narrow it"),
    "no cast": (lambda w: gathered(w).sum(), "(aten.sum.default) needs the wide elements"),
    "a view of the bits": (
        lambda w: gathered(w).view(torch.int32).to(BF16), "(aten.view.dtype) needs the wide"),
    "another dtype mixed in": (mixed, "cat (aten.cat.default) mixes in _to_copy of another dtype"),
    "another device": (elsewhere, "(aten._to_copy.default) needs the wide elements"),
    "a padding that is not zero": (
        lambda w: torch.nn.functional.pad(gathered(w), (0, 1), value=0.1).to(BF16),
        "(aten.constant_pad_nd.default) needs the wide elements"),
    "a dtype no transport takes": (
        lambda w: gathered(w).to(torch.int16), "no transport takes torch.int16"),
    "bytes that are padded": (
        lambda w: torch.nn.functional.pad(gathered(w), (0, 1)).to(FP8),
        "a zero of torch.float8_e4m3fn may have other bits than a zero byte"),
    "nothing done with it": (
        lambda w: (gathered(w), w.sum())[1], "nothing casts what it gathers"),
}  # fmt: skip


@pytest.mark.parametrize("case", KEPT)
def test_a_gather_stays_wide_and_says_why(case: str) -> None:
    fn, why = KEPT[case]
    graph, cast = traced(fn, shard(2, 6)), CastBeforeGather()
    before = graph.code
    assert cast(graph) == 0
    assert graph.code == before
    (verdict,) = cast.verdicts
    assert verdict.dtype is None
    assert why in verdict.why


def test_a_graph_without_values_stays_as_it_is() -> None:
    graph, cast = traced(lambda w: gathered(w).to(BF16), shard(2, 6)), CastBeforeGather()
    for node in graph.graph.nodes:
        node.meta.clear()
    assert cast(graph) == 0
    assert "the graph has no values in `node.meta`" in cast.verdicts[0].why


def test_values_that_no_one_fake_mode_made_are_left_alone() -> None:
    def use(w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.cat([OPS.wait_tensor(w), v]).to(BF16)

    graph, cast = make_fx(use, tracing_mode="real")(shard(2, 6), shard(3, 6)), CastBeforeGather()
    (wait,) = (n for n in graph.graph.nodes if n.target is OPS.wait_tensor.default)
    with graph.graph.inserting_before(wait):  # which in a trace of real tensors would be run
        target = OPS.all_gather_into_tensor.default
        gather = graph.graph.call_function(target, (wait.args[0], 1, "all"))
    gather.meta["val"] = wait.meta["val"]
    wait.args = (gather,)
    before = str(graph.graph)
    assert cast(graph) == 0
    assert str(graph.graph) == before
    assert "mixes in v_1 of another fake mode" in cast.verdicts[0].why


def test_ranks_are_those_of_the_graph() -> None:
    (made,) = run(traced(gathered, shard(2, 6)), shard(2, 6))
    assert made.shape == (2 * RANKS, 6)
