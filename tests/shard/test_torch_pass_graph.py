"""What a compiler reads of a graph after the pass: values, origins, verdicts, and a key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.fx import Node

from tests.shard.graphs import OPS, Alone, gathered, gathers, traced
from xlayout.torch import CastBeforeGather, cast_before_gather, movement, region

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn


class Compared(Alone):
    """Runs a graph, and compares every value with the one that its node tells of."""

    def run_node(self, n: Node) -> Any:
        made, told = super().run_node(n), n.meta.get("val")
        if isinstance(made, torch.Tensor) and n.op != "output":
            assert isinstance(told, torch.Tensor)
            assert (made.dtype, made.shape, made.stride()) == (
                told.dtype,
                told.shape,
                told.stride(),
            )
            kept = n.meta.get("tensor_meta")
            assert kept is None or (kept.dtype, kept.stride) == (made.dtype, made.stride())
        return made


def joined_late(w: torch.Tensor) -> Any:
    """Of two ways from the gather to where they meet, one is longer."""
    x = gathered(w)
    return torch.cat([x, x.flip(0).flip(1)]).to(BF16)


def in_parts(w: torch.Tensor) -> Any:
    x = gathered(w)
    return x[1:].to(BF16), x.t().to(BF16)


def as_bytes(w: torch.Tensor) -> Any:
    return gathered(w).t().to(FP8)


def met(w: torch.Tensor) -> Any:
    return torch.cat([gathered(w), w]).to(BF16)


USES: list[Callable[[torch.Tensor], Any]] = [joined_late, in_parts, as_bytes, met]


def shard() -> torch.Tensor:
    return torch.arange(12.0).reshape(2, 6)


@pytest.mark.parametrize("use", USES)
def test_every_node_tells_of_the_value_that_it_has(use: Callable[[torch.Tensor], Any]) -> None:
    graph = traced(use, shard())
    assert CastBeforeGather()(graph) == 1
    Compared(graph).run(shard())


@pytest.mark.parametrize(
    ("use", "origins"),
    [
        (
            in_parts,
            [("_to_copy", "all_gather_into_tensor"), ("clone", "_to_copy"),
             ("clone", "_to_copy_1")],
        ),
        (
            as_bytes,
            [("_to_copy", "all_gather_into_tensor"), ("view", "all_gather_into_tensor"),
             ("view", "t")],
        ),
        (met, [("_to_copy", "all_gather_into_tensor"), ("_to_copy", "cat")]),
    ],
)  # fmt: skip
def test_what_is_put_in_comes_from_where_the_node_does_that_it_serves(
    use: Callable[[torch.Tensor], Any], origins: list[tuple[str, str]]
) -> None:
    graph = traced(use, shard())
    own = {node: node.name for node in graph.graph.nodes}
    for node in own:
        node.meta["stack_trace"] = node.name
    CastBeforeGather()(graph)
    put_in = [node for node in graph.graph.nodes if node not in own]
    assert [(op(node), node.meta["stack_trace"]) for node in put_in] == origins
    kept = [node for node in graph.graph.nodes if node in own]
    assert all(node.meta["stack_trace"] == own[node] for node in kept)


def op(node: Node) -> str:
    """The name of an op, without its library and overload."""
    return str(node.target).split(".")[1]


def test_the_cast_is_the_op_by_which_the_graph_casts() -> None:
    cast = torch.ops.prims.convert_element_type
    graph = traced(lambda w: cast(gathered(gathered(w)), BF16), shard())
    assert CastBeforeGather()(graph) == 2
    ops = [op(node) for node in graph.graph.nodes if node.op == "call_function"]
    assert ops == ["convert_element_type", *["all_gather_into_tensor", "wait_tensor"] * 2]


def read(w: torch.Tensor) -> Any:
    x = gathered(w)
    return x[1:].to(BF16).sum(), x.t().to(BF16).t().sum()


def apart(w: torch.Tensor) -> Any:
    """Two results, each in memory of its own."""
    x = gathered(w)
    return x.to(BF16), x.flip(0).to(BF16)


@pytest.mark.parametrize("use", [read, apart])
def test_what_is_only_read_or_shared_with_nobody_is_not_copied(
    use: Callable[[torch.Tensor], Any],
) -> None:
    graph = traced(use, shard())
    assert CastBeforeGather()(graph) == 1
    assert "clone" not in [op(node) for node in graph.graph.nodes if node.op == "call_function"]


def test_a_cast_of_which_nothing_is_told_is_a_copy() -> None:
    graph = traced(lambda w: gathered(w).to(BF16), shard())
    before = Alone(graph).run(shard())
    (node,) = (n for n in graph.graph.nodes if n.target is torch.ops.aten._to_copy.default)
    del node.meta["val"]
    assert CastBeforeGather()(graph) == 1
    assert torch.equal(Compared(graph).run(shard()), before)


@pytest.mark.parametrize(
    "part", [lambda x: x[:, ::2], lambda x: x.narrow(0, 0, x.shape[1])], ids=["strides", "sizes"]
)
def test_sizes_that_are_open_stay_open(part: Callable[[torch.Tensor], Any]) -> None:
    graph = traced(lambda w: part(gathered(w)).to(BF16), shard(), dynamic=True)
    (whole,) = (n for n in graph.graph.nodes if n.target is OPS.wait_tensor.default)
    shapes = whole.meta["val"].fake_mode.shape_env
    before = len(shapes.guards)
    assert CastBeforeGather()(graph) == 1
    assert len(shapes.guards) == before


def test_a_module_runs_what_its_graph_says() -> None:
    graph = traced(lambda w: gathered(w).to(BF16), shard())
    CastBeforeGather()(graph)
    (cast, *_) = (line for line in graph.code.splitlines() if "=" in line)
    assert "_to_copy" in cast


def test_the_graph_alone_will_do() -> None:
    graph = traced(lambda w: gathered(w).to(BF16), shard())
    assert CastBeforeGather()(graph.graph) == 1
    assert gathers(graph) == [BF16]


def test_verdicts_are_in_the_order_of_the_gathers_of_every_graph() -> None:
    def two(w: torch.Tensor) -> Any:
        return gathered(w).to(BF16), gathered(w).sum()

    cast, graphs = CastBeforeGather(), [traced(two, shard()), traced(two, shard())]
    names = [
        node.name
        for graph in graphs
        for node in graph.graph.nodes
        if node.target is OPS.all_gather_into_tensor.default
    ]
    for graph in graphs:
        cast(graph)
    assert [verdict.gather for verdict in cast.verdicts] == names
    assert [verdict.dtype for verdict in cast.verdicts] == [BF16, None] * 2


@pytest.mark.parametrize("source", [cast_before_gather, movement, region])
def test_what_is_compiled_with_other_sources_has_another_key(
    source: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = CastBeforeGather().uuid()
    assert before == CastBeforeGather().uuid()
    changed = tmp_path / "changed.py"
    changed.write_text(Path(str(source.__file__)).read_text("utf-8") + "# changed\n", "utf-8")
    monkeypatch.setattr(source, "__file__", str(changed))
    assert CastBeforeGather().uuid() not in (None, before)
