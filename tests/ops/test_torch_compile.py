"""Under torch.compile an op is one graph of plain views, one permute and at most one copy."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import xlayout as xl
from tests.ops.examples import Example, flat, lists, numbered, wanted
from tests.ops.matrix import EXAMPLES, ONE_OF_EACH, ONE_PIECE

VIEWS = {"reshape", "view", "permute", "narrow", "expand", "getitem"}
COPIES = {"clone", "cat", "new_full"}
ALLOCATE = {"clone", "cat", "new_full", "_to_copy", "index", "gather", "where", "copy_"}

pytestmark = pytest.mark.usefixtures("no_graph_of_another_test")


class Recorder:
    """A compiler that keeps the graphs it is given and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
        self.graphs.append(graph)
        return graph.forward

    def ops(self) -> Counter[str]:
        calls = [n for g in self.graphs for n in g.graph.nodes if n.op.startswith("call_")]
        return Counter(n.target if isinstance(n.target, str) else n.target.__name__ for n in calls)


def tensors(example: Example) -> list[torch.Tensor]:
    return [torch.from_numpy(x) for x in numbered(example.shapes)]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_one_graph_of_plain_ops(example: Example) -> None:
    recorder = Recorder()
    call = torch.compile(example.call, fullgraph=True, backend=recorder)
    assert lists(call(*tensors(example))) == wanted(example)
    assert len(recorder.graphs) <= 1  # none for an op without work
    ops = recorder.ops()
    assert set(ops) <= VIEWS | COPIES


@pytest.mark.parametrize("example", ONE_PIECE, ids=str)
def test_one_piece_is_one_copy(example: Example) -> None:
    recorder = Recorder()
    torch.compile(example.call, fullgraph=True, backend=recorder)(*tensors(example))
    assert recorder.ops()["permute"] <= 1
    graph = make_fx(example.call)(*tensors(example)).graph
    names = [str(n.target).split(".")[1] for n in graph.nodes if n.op == "call_function"]
    assert sum(name in ALLOCATE for name in names) == 1


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_output_is_copied_once(example: Example) -> None:
    graph = make_fx(lambda xs: example.call(*xs))(tensors(example)).graph
    results = len(wanted(example))
    copies = [n for n in graph.nodes if str(n.target).split(".")[-2:-1] == ["clone"]]
    copied = len(copies) - 2 * example.name.startswith(
        "ungroup"
    )  # segments, before they are joined
    assert copied <= results


def checked(call: Callable[..., Any], shapes: list[tuple[int, ...]]) -> None:
    """`call` on arrays of these shapes, against numpy."""
    for shape in shapes:
        x = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
        assert call(torch.from_numpy(x)).tolist() == xl.interleave(x, block=2).tolist()


def interleaved(recorder: Recorder, **options: Any) -> Callable[..., Any]:
    return torch.compile(
        lambda x: xl.interleave(x, block=2), fullgraph=True, backend=recorder, **options
    )


def test_three_shapes_go_through_one_compiled_function() -> None:
    recorder = Recorder()
    checked(interleaved(recorder), [(8, 3), (12, 3), (16, 5)])
    assert len(recorder.graphs) == 3  # the layout's own axis is a constant of each


def test_an_untouched_axis_may_be_dynamic() -> None:
    recorder = Recorder()
    checked(interleaved(recorder, dynamic=True), [(8, 3), (8, 5), (8, 7), (8, 11)])
    assert len(recorder.graphs) == 1


def test_an_axis_that_turns_out_to_vary_is_compiled_once_more() -> None:
    recorder = Recorder()
    checked(interleaved(recorder), [(8, 3), (8, 5), (8, 7), (8, 11)])
    assert len(recorder.graphs) == 2


def test_holes_of_floats_are_filled_where_sizes_are_dynamic() -> None:
    def padded(x: torch.Tensor, value: float) -> torch.Tensor:
        return xl.pad(x, to=7, axis=-1, value=value)

    for value in (1.5, float("inf"), float("nan")):
        call = torch.compile(padded, fullgraph=True, dynamic=True, backend=Recorder())
        for rows in (3, 5):
            x = torch.ones(rows, 4)
            torch.testing.assert_close(call(x, value), padded(x, value), equal_nan=True)


def test_what_fills_holes_may_vary() -> None:
    layout = xl.pad.layout((3,), to=5)
    for padded in (lambda x, v: xl.pad(x, to=5, value=v), lambda x, v: layout(x, fill=v)):
        call = torch.compile(padded, fullgraph=True, backend="eager")
        for value in (1.5, 2.5, 3, 4, -0.0):
            assert call(torch.ones(3), value).tolist() == [1, 1, 1, value, value]


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (lambda x: xl.matrix_transpose(x), (2, 3, 4)),
        (lambda x: xl.stack([x, x], axis=1), (3, 4)),
        (lambda x: xl.regroup(x, sizes=(8, 2, 2), groups=2, axis=1), (5, 12)),
        (lambda x: xl.split_qkv(x, heads=4, kv_heads=2, axis=-1)[0], (5, 16)),
        (lambda x: xl.pad(x, to=7, axis=-1), (3, 4)),
        (lambda x: xl.rearrange(x, "b s (h d) -> b h s d", h=4), (3, 5, 8)),
        (lambda x: xl.rearrange(x, "b s d -> (b s) d"), (3, 5, 8)),
        (lambda x: xl.rearrange(x, "... (q + k) -> ... q, ... k", q=3)[1], (3, 5, 8)),
        (lambda x: xl.to_tiles(x, grid=(2, 2))[1][0], (3, 4, 6)),
        (lambda x: xl.from_tiles([[x, x], [x, x]]), (3, 4, 6)),
    ],
    ids=[
        *("matrix_transpose", "stack", "regroup", "split_qkv", "pad"),
        *("rearrange", "rearrange, merged", "rearrange, segments", "to_tiles", "from_tiles"),
    ],
)
def test_the_first_axis_may_be_dynamic(op: Callable[..., Any], shape: tuple[int, ...]) -> None:
    recorder = Recorder()
    call = torch.compile(op, fullgraph=True, backend=recorder)
    for rows in (shape[0], 6, 9):
        x = torch.arange(rows * int(np.prod(shape[1:]))).reshape(rows, *shape[1:])
        torch._dynamo.mark_dynamic(x, 0)
        assert call(x).tolist() == op(x).tolist()
    assert len(recorder.graphs) == 1


def test_an_axis_of_the_layout_cannot_be_dynamic() -> None:
    x = torch.zeros(8, 3)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(Exception, match=r"[Cc]onstraint|specialized"):
        interleaved(Recorder())(x)


def test_a_refusal_is_said_while_compiling() -> None:
    call = torch.compile(lambda x: xl.interleave(x, block=3), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"does not divide into groups \* block = 6"):
        call(torch.zeros(8))
    share = torch.compile(lambda x: xl.interleave(x, copy=False), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="copy: False cannot be promised while tracing"):
        share(torch.zeros(8))


def test_it_fuses_into_a_model_forward_and_backward() -> None:
    weight = torch.nn.Parameter(torch.randn(8, 4, dtype=torch.float64))

    def loss(x: torch.Tensor) -> torch.Tensor:
        q, k, v = xl.split_qkv(xl.rope_halves(weight, heads=2), heads=2, kv_heads=1)
        return (x @ xl.matrix_transpose(q)).square().sum() + (k * v).sum()

    x = torch.randn(3, 4, dtype=torch.float64)
    (plain,) = torch.autograd.grad(loss(x), weight)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")(x)
    (traced,) = torch.autograd.grad(compiled, weight)
    torch.testing.assert_close(traced, plain)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what inductor itself imports
@pytest.mark.parametrize(
    "example",
    [e for e in ONE_OF_EACH if e.name.startswith(("interleave", "fuse_qkv", "split_qkv"))],
    ids=str,
)
def test_inductor(example: Example) -> None:
    call = torch.compile(example.call, fullgraph=True)
    assert lists(call(*tensors(example))) == wanted(example)


@pytest.mark.parametrize("rows", [24, 1 << 14])
def test_one_function_may_be_given_several_ops(rows: int) -> None:
    x = torch.arange(rows * 64).reshape(rows, 64)
    call = torch.compile(lambda op, x: op(x, groups=4), backend="eager", fullgraph=True)
    for op in (xl.interleave, xl.deinterleave, xl.interleave, xl.deinterleave):
        assert torch.equal(call(op, x), op(x, groups=4))


def test_one_function_may_be_given_several_layouts() -> None:
    x = torch.arange(48).reshape(24, 2)
    call = torch.compile(lambda layout, x: layout(x), backend="eager", fullgraph=True)
    layouts = [xl.interleave.layout((24, 2), groups=groups) for groups in (2, 3, 4)]
    for layout in layouts + layouts:
        assert torch.equal(call(layout, x), layout(x))


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_result_may_be_written_into(example: Example, backend: str) -> None:
    def changed(*xs: torch.Tensor) -> tuple[Any, list[torch.Tensor]]:
        made = example.call(*xs)
        for y in flat(made):
            y.add_(1)
        return made, [x.sum() for x in xs]

    xs = tensors(example)
    made, sums = torch.compile(changed, fullgraph=True, backend=backend)(*xs)
    assert all(map(torch.equal, xs, tensors(example)))
    assert lists(sums) == [x.sum().item() for x in xs]
    assert lists(made) == [
        (y + 1).tolist() for y in flat(example.oracle(*numbered(example.shapes)))
    ]


def test_where_views_will_do_there_are_views() -> None:
    recorder = Recorder()
    call = torch.compile(
        lambda x: (xl.matrix_transpose(x, copy=None), xl.to_tiles(x, grid=(2, 2), copy=None)),
        fullgraph=True,
        backend=recorder,
    )
    x = torch.arange(24).reshape(4, 6)
    turned, tiles = call(x)
    assert set(recorder.ops()) <= VIEWS
    assert torch.equal(turned, x.t())
    assert torch.equal(xl.from_tiles(tiles), x)


def test_open_sizes_of_several_inputs_are_compared() -> None:
    call = torch.compile(lambda x, y: xl.stack([x, y], axis=-1), fullgraph=True, backend="eager")
    for n, m in ((3, 5), (4, 7), (8, 2)):
        x = torch.arange(n * m).reshape(n, m)
        assert torch.equal(call(x, x + 1), torch.stack([x, x + 1], -1))
    with pytest.raises(Exception, match=r"xs: shapes .* differ"):
        call(torch.zeros(4, 6), torch.arange(24.0).view(6, 4))


def test_a_size_may_be_open_in_one_input_alone() -> None:
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    call = torch.compile(lambda x, y: xl.stack([x, y], axis=1), fullgraph=True, backend="eager")
    assert torch.equal(call(x, y), torch.stack([x, y], 1))


def test_the_first_array_of_a_process_may_be_a_parameter_inside() -> None:
    code = """
import torch, xlayout as xl
weight = torch.nn.Linear(4, 3).weight
call = torch.compile(lambda x: x @ xl.matrix_transpose(weight), fullgraph=True, backend="eager")
x = torch.randn(2, 4)
assert torch.equal(call(x), x @ weight.T.contiguous())
"""
    subprocess.run([sys.executable, "-c", code], check=True)
