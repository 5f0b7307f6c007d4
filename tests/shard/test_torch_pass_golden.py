"""Every graph recorded from DeepCompile gets the same decision, or a better one for a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.shard.graphs import Alone, gathers, recorded
from xlayout.torch import CastBeforeGather

FILE = Path(__file__).with_name("deepcompile.json")
CASES = {case["id"]: case for case in json.loads(FILE.read_text("utf-8"))["cases"]}

BETTER = {
    "dc/two_casts_of_param_not_fused": "two casts to one dtype are as good as one",
    "dc/view_then_cast_not_fused": "a transpose moves elements, so the cast may pass it",
    "dc/to_copy_with_extra_kwargs_not_fused": "a memory format is the business of a copy",
}
SAME = {
    "dc/cast_plus_fp32_use_not_fused": "sum_default (aten.sum.default) needs the wide elements",
    "dc/param_only_output": None,
    "dc/same_size_fp16_to_bf16_not_fused":
        "a cast from torch.float16 to torch.bfloat16 does not narrow it",
}  # fmt: skip


def graph_of(case: dict[str, Any]) -> torch.fx.GraphModule:
    dtype = getattr(torch, case["params"]["param_dtype"].removeprefix("torch."))
    return recorded(case["inputs"]["graph"], dtype)


def outputs(graph: torch.fx.GraphModule) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    kinds = [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]
    given = [torch.randn(v.shape, generator=generator).to(v.dtype) for v in kinds]
    return list(Alone(graph).run(*given))


def named(case: str) -> str:
    return f"{case}: {BETTER[case]}" if case in BETTER else case


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_recorded_graph_is_decided_as_it_was_or_better(case: str) -> None:
    graph, cast = graph_of(CASES[case]), CastBeforeGather()
    before = outputs(graph)
    fused = CASES[case]["expected"]["fused"]
    assert cast(graph) == (fused or case in BETTER)
    assert not (fused and case in BETTER)
    if not fused and case not in BETTER:
        assert [verdict.why for verdict in cast.verdicts] == [SAME[case]][: len(cast.verdicts)]
    else:
        assert gathers(graph) == [torch.bfloat16]
    for wanted, got in zip(before, outputs(graph), strict=True):
        assert got.dtype == wanted.dtype
        assert got.stride() == wanted.stride()
        assert torch.equal(got, wanted)


def test_every_difference_is_of_a_recorded_graph() -> None:
    refused = {case for case in CASES if not CASES[case]["expected"]["fused"]}
    assert BETTER.keys() | SAME.keys() == refused
    assert not BETTER.keys() & SAME.keys()


def test_a_cast_that_is_returned_has_memory_of_its_own() -> None:
    """The original returned the gathered buffer, and freed it after the last use it knew of."""
    case = CASES["dc/cast_result_is_output"]
    assert case["status"] == "bug"
    graph = graph_of(case)
    assert CastBeforeGather()(graph) == 1
    product, weight = outputs(graph)
    assert weight.untyped_storage().nbytes() == weight.nbytes
    assert weight.untyped_storage().data_ptr() != product.untyped_storage().data_ptr()
