"""Compiled by torch, a large layout is one operation: where it belongs, and right there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xlayout as xl
from tests.strategies import bijections
from tests.table import by_table
from xlayout.algebra import Layout
from xlayout.lower.linear import form_of

torch = pytest.importorskip("torch")

from torch._dynamo.utils import counters  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from xlayout_torch import primitive  # noqa: E402

SHAPE = (1024, 768)
NAME = "xlayout.relayout"
Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def compiled_anew() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def values(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def zipped(x: Any) -> Any:
    return xl.interleave(x, axis=1)


def graphs(function: Call, *arrays: Any, **options: Any) -> str:
    """The graphs that are compiled."""
    seen = []

    def keep(graph: Any, _inputs: Any) -> Call:
        seen.append(str(graph.graph))
        run: Call = graph.forward
        return run

    torch.compile(lambda *xs: function(*xs), backend=keep, **options)(*arrays)
    return "\n".join(seen)


# -- where it stays away ---------------------------------------------------------------------------


def off(function: Call) -> str:
    with xl.native(False):
        return graphs(function, values())


def exported(function: Call) -> str:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    return str(torch.export.export(Model(), (values(),), strict=True).graph)


def forward_mode(function: Call) -> str:
    with forward_ad.dual_level():
        return graphs(function, forward_ad.make_dual(values(), values(seed=1)))


def many(_function: Call) -> str:
    return graphs(lambda x: xl.stack([x] * 257, axis=2), values((64, 32)))


SITUATIONS: dict[str, Callable[[Call], str]] = {
    "off": off,
    "device": lambda function: graphs(function, values().to("meta")),
    "dtype": lambda function: graphs(function, torch.complex(values(), values(seed=1))),
    "subclass": lambda function: graphs(function, TwoTensor(values(), values(seed=1))),
    "strided": lambda function: graphs(function, values().t()),
    "exported": exported,
    "transform": lambda function: graphs(torch.vmap(function), values((3, *SHAPE))),
    "forward mode": forward_mode,
    "small": lambda function: graphs(function, values((32, 32))),
    "by lines": lambda _: graphs(lambda x: xl.interleave(x, axis=1, block=16), values()),
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


def test_an_open_axis_keeps_plain_ops() -> None:
    assert NAME not in graphs(zipped, values(), dynamic=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch itself imports
@pytest.mark.parametrize("rows", [2, 1 << 11])  # plain ops, the operation
def test_torch_keeps_a_program_with_it_for_other_processes(rows: int) -> None:
    """Of some functions in a graph it knows too little for that."""
    torch._dynamo.reset()
    counters.clear()
    torch.compile(zipped)(torch.zeros(rows, 1024))
    found = counters["aot_autograd"]
    assert found["autograd_cache_saved"] + found["autograd_cache_hit"] == 1
    assert found["autograd_cache_bypass"] == 0


def test_inductors_wrapper_in_cpp_takes_it_too() -> None:
    code = """
import torch, xlayout as xl
x = torch.randn(1024, 1024)
call = torch.compile(xl.matrix_transpose, fullgraph=True, options={"cpp_wrapper": True})
assert torch.equal(call(x), x.t())
print("right")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr[-400:]


def test_where_a_view_will_do_there_is_one() -> None:
    assert graphs(xl.matrix_transpose, values()).count(NAME) == 1
    assert NAME not in graphs(lambda x: xl.matrix_transpose(x, copy=None), values())
    assert graphs(lambda x: xl.interleave(x, axis=1, copy=None), values()).count(NAME) == 1


# -- what it does ----------------------------------------------------------------------------------


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small, and however long its runs, a layout is the operation."""
    for name in ("small", "by lines"):
        monkeypatch.delitem(primitive.GATES, name)


LAYOUTS = {
    "transpose": xl.matrix_transpose.layout((9, 24)),
    "zip": xl.interleave.layout((9, 24), axis=1),
    "rope": xl.rope_halves.layout((9, 24), heads=3, axis=1),
    "three pieces": xl.regroup.layout((9, 24), sizes=(4, 8, 12), groups=2, axis=1),
    "several in": xl.fuse_qkv.layout((8, 3), (4, 3), (4, 3), heads=2, kv_heads=1),
    "several out": xl.interleave.layout((16, 3))
    >> xl.split_qkv.layout((16, 3), heads=2, kv_heads=1),
}
BACKENDS = ("eager", "aot_eager", "inductor")


def inputs(layout: Layout) -> list[Any]:
    return [values(shape, seed) for seed, shape in enumerate(layout.in_shapes)]


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def agree(made: Any, wanted: Any) -> None:
    for y, z in zip(leaves(made), leaves(wanted), strict=True):
        assert torch.equal(y, z)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_one_operation(name: str) -> None:
    layout = LAYOUTS[name]
    assert graphs(layout, *inputs(layout), fullgraph=True).count(f"target=torch.ops.{NAME}") == 1


@pytest.mark.usefixtures("always")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what inductor itself imports
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_gradients_are_those_of_plain_ops(name: str, backend: str) -> None:
    layout = LAYOUTS[name]

    def energy(*xs: Any) -> Any:
        return sum((k + 1) * (y**3).sum() for k, y in enumerate(leaves(layout(*xs))))

    plain = [x.requires_grad_() for x in inputs(layout)]
    traced = [x.requires_grad_() for x in inputs(layout)]
    energy(*plain).backward()
    torch.compile(energy, fullgraph=True, backend=backend)(*traced).backward()
    agree(tuple(x.grad for x in traced), tuple(x.grad for x in plain))


@pytest.mark.usefixtures("always")
def test_a_result_that_nobody_uses_has_no_gradient() -> None:
    layout = LAYOUTS["several out"]
    x = values(layout.in_shape).requires_grad_()
    q, _, _ = torch.compile(layout, fullgraph=True, backend="eager")(x)
    q.sum().backward()
    assert x.grad.sum() == q.numel()


@pytest.mark.usefixtures("always")
def test_second_derivatives() -> None:
    layout = LAYOUTS["three pieces"]
    call = torch.compile(layout, fullgraph=True, backend="eager")
    x = values(layout.in_shape).double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: call(x) ** 3, x)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_operation_keeps_the_rules_of_torch(name: str) -> None:
    layout = LAYOUTS[name]
    xs = [x.requires_grad_() for x in inputs(layout)]
    relayout = torch.ops.xlayout.relayout
    for op in [relayout.default] + [relayout.one] * (len(layout.out_shapes) == 1):
        torch.library.opcheck(op, (xs, form_of(layout, False)))


@settings(max_examples=60)
@given(st.data(), st.sampled_from([torch.uint8, torch.bfloat16, torch.float32, torch.complex128]))
def test_the_operation_of_any_bijection(data: st.DataObject, dtype: Any) -> None:
    layout = data.draw(bijections(24))
    form = form_of(layout, False)
    if form is None:
        return
    numbers = [
        np.arange(np.prod(s), dtype=np.float32).reshape(s) + k
        for k, s in enumerate(layout.in_shapes)
    ]
    arrays = [torch.from_numpy(x).to(dtype) for x in numbers]
    strided = [torch.stack([x, x], -1)[..., 0] for x in arrays]
    wanted = [torch.from_numpy(y).to(dtype) for y in by_table(layout, numbers)]
    for xs in (arrays, strided):
        agree(tuple(torch.ops.xlayout.relayout(xs, form)), tuple(wanted))
        with xl.native(False):
            agree(tuple(torch.ops.xlayout.relayout(xs, form)), tuple(wanted))


def test_a_switch_that_is_turned_later() -> None:
    call = torch.compile(zipped, fullgraph=True, backend="eager")
    x = values()
    made = call(x)
    with xl.native(False):
        agree(call(x), made)
    agree(made, zipped(x))


def test_each_size_is_compiled_once() -> None:
    counter = torch._dynamo.testing.CompileCounter()
    call = torch.compile(lambda x: zipped(x), fullgraph=True, backend=counter)
    for rows in (1024, 1024, 1280, 2048, 3072):
        x = values((rows, 768))
        agree(call(x), zipped(x))
    assert counter.frame_count == 2  # the second is for any number of rows
