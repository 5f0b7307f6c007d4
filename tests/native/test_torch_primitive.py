"""Compiled by torch, a large layout is one operation where that is wanted, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xlayout as xl

torch = pytest.importorskip("torch")

from torch._dynamo.testing import CompileCounter, EagerAndRecordGraphs  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from xlayout_torch import primitive  # noqa: E402

SHAPE = (1024, 768)
NAME = "xlayout.relayout"
Call = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("no_graph_of_another_test")


def values(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def zipped(x: Any) -> Any:
    return xl.interleave(x, axis=1)


def graphs(function: Call, *arrays: Any, **options: Any) -> str:
    """The graphs that are compiled."""
    backend = EagerAndRecordGraphs()
    torch.compile(lambda *xs: function(*xs), backend=backend, **options)(*arrays)
    return "\n".join(str(graph.graph) for graph in backend.graphs)


# -- where it stays away ---------------------------------------------------------------------------


def off(function: Call) -> str:
    with xl.native(False):
        return graphs(function, values())


def exported(function: Call) -> str:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    return str(torch.export.export(Model(), (values(),), strict=True).graph)


def many(_function: Call) -> str:
    return graphs(lambda x: xl.stack([x] * 257, axis=2), values((512, 32)))


SITUATIONS: dict[str, Callable[[Call], str]] = {
    "off": off,
    "device": lambda function: graphs(function, values().to("meta")),
    "dtype": lambda function: graphs(function, torch.complex(values(), values(seed=1))),
    "subclass": lambda function: graphs(function, TwoTensor(values(), values(seed=1))),
    "strided": lambda function: graphs(function, values().t()),
    "exported": exported,
    "transform": lambda function: graphs(torch.vmap(function), values((3, *SHAPE)), fullgraph=True),
    "small": lambda function: graphs(function, values((32, 32))),
    "by lines": lambda _: graphs(
        lambda x: xl.interleave(x, axis=1, block=16), values((2048, 1024))
    ),
    "in order": lambda _: graphs(
        lambda x: xl.trim(x, axis=1, to=3), torch.zeros((1 << 21, 4), dtype=torch.uint8)
    ),
    "many": many,
}


def test_every_gate_has_a_situation() -> None:
    assert {*SITUATIONS, "absent"} == primitive.GATES.keys()


def test_without_a_gate_in_the_way_there_is_the_operation() -> None:
    assert graphs(zipped, values(), fullgraph=True).count(NAME) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch itself imports
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_gate_keeps_the_operation_away(name: str) -> None:
    assert NAME not in SITUATIONS[name](zipped)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", SITUATIONS)
def test_and_no_other_gate_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(primitive.GATES, name)
    try:
        text = SITUATIONS[name](zipped)
    except Exception as error:  # noqa: BLE001 -- what an operation that does not belong brings about
        text = str(error)
    assert "relayout" in text


# Of each kind, by bytes that stay together: an array of as many as are just enough, and the call.
AT: dict[str, Callable[[int], tuple[tuple[int, ...], Call]]] = {
    "weave": lambda n: ((n // 1024, 1024), zipped),
    "deal": lambda n: ((n // 1024, 1024), lambda x: xl.deinterleave(x, axis=1)),
    "apart": lambda n: ((n // 1024, 512, 2), lambda x: xl.unstack(x, axis=-1)),
    "turn": lambda n: ((n // 1024, 1024), xl.matrix_transpose),
}


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64"])
@pytest.mark.parametrize("kind", primitive.FROM)
def test_it_comes_from_the_size_on_that_was_measured(kind: str, dtype: str) -> None:
    width = getattr(torch, dtype).itemsize
    megabytes = primitive.FROM[kind][width.bit_length() - 1]
    shape, call = AT[kind]((megabytes << 20) // width)
    for rows, comes in ((shape[0], True), (shape[0] - 1, False)):
        x = torch.zeros((rows, *shape[1:]), dtype=getattr(torch, dtype))
        assert (NAME in graphs(call, x)) is comes


TURNED = xl.trim.layout((1 << 23, 4), axis=1, to=3) >> xl.matrix_transpose.layout((1 << 23, 3))


@pytest.mark.parametrize(
    ("rows", "call", "comes"),
    [
        (1 << 23, lambda x: xl.trim(x, axis=1, to=3), False),
        (1 << 23, TURNED, True),
        (1 << 22, lambda x: xl.pad(x, axis=1, to=7), False),
        (primitive.LARGE // 7 + 1, lambda x: xl.pad(x, axis=1, to=7), True),
    ],
    ids=["cut", "cut and turned", "padded", "padded, and large"],
)
def test_rows_that_are_cut_or_padded(rows: int, call: Call, comes: bool) -> None:
    x = torch.zeros((rows, 4), dtype=torch.uint8)
    assert (NAME in graphs(call, x)) is comes


@pytest.mark.parametrize("call", [xl.matrix_transpose, lambda x: xl.pad(x, to=40), xl.unstack])
def test_a_compiled_call_is_guarded_by_few_facts(call: Call) -> None:
    """Guards are checked on every call; in the general form there would be twice as many."""
    x = values((32, 32))
    call(x)

    def calls(x: Any) -> Any:
        return call(x)

    torch.compile(calls, dynamic=False, fullgraph=True, backend="eager")(x)
    (entry,) = torch._dynamo.eval_frame._debug_get_cache_entry_list(calls.__code__)
    assert str(entry.guard_manager).count("GuardManager: source=") < 80


def test_an_open_axis_keeps_plain_ops() -> None:
    assert NAME not in graphs(zipped, values(), dynamic=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch itself imports
@pytest.mark.parametrize("rows", [2, 1 << 11])  # plain ops, the operation
def test_torch_keeps_a_program_with_it_for_other_processes(rows: int) -> None:
    """With some functions in a graph it cannot."""
    torch._dynamo.reset()
    counters.clear()
    torch.compile(zipped)(torch.zeros(rows, 1024))
    found = counters["aot_autograd"]
    assert found["autograd_cache_saved"] + found["autograd_cache_hit"] == 1
    assert found["autograd_cache_bypass"] == 0


def test_inductors_wrapper_in_cpp_takes_it_too() -> None:
    code = """
import torch, xlayout as xl
x = torch.randn(2048, 2048)
call = torch.compile(xl.matrix_transpose, fullgraph=True, options={"cpp_wrapper": True})
assert torch.equal(call(x), x.t())
print("right")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr[-400:]


def test_where_a_view_will_do_there_is_one() -> None:
    large = values((4096, 1024))
    assert graphs(xl.matrix_transpose, large).count(NAME) == 1
    assert NAME not in graphs(lambda x: xl.matrix_transpose(x, copy=None), large)
    assert graphs(lambda x: xl.interleave(x, axis=1, copy=None), values()).count(NAME) == 1


def test_a_switch_that_is_turned_later() -> None:
    call = torch.compile(zipped, fullgraph=True, backend="eager")
    x = values()
    made = call(x)
    with xl.native(False):
        assert torch.equal(call(x), made)
    assert torch.equal(made, zipped(x))


def test_each_size_is_compiled_once() -> None:
    counter = CompileCounter()
    call = torch.compile(lambda x: zipped(x), fullgraph=True, backend=counter)
    for rows in (1024, 1024, 1280, 2048, 3072):
        x = values((rows, 768))
        assert torch.equal(call(x), zipped(x))
    assert counter.frame_count == 2  # the second is compiled for any number of rows
