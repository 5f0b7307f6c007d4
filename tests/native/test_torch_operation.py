"""The operation of compiled torch: its values, and its derivatives of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xlayout as xl
from tests.strategies import bijections, several
from tests.table import by_table
from xlayout.algebra import Layout, Piece
from xlayout.lower.linear import form_of

torch = pytest.importorskip("torch")

from torch._dynamo.testing import EagerAndRecordGraphs  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

from xlayout_torch import primitive  # noqa: E402
from xlayout_torch.operation import parse, relayout  # noqa: E402

# From modules that torch itself imports.
pytestmark = [
    pytest.mark.usefixtures("no_graph_of_another_test"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.torch.jit"),
]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every layout the operation, however small, and however long its runs."""
    for name in ("small", "by lines", "in order"):
        monkeypatch.delitem(primitive.GATES, name)


LAYOUTS = {
    "transpose": xl.matrix_transpose.layout((9, 24)),
    "zip": xl.interleave.layout((9, 24), axis=1),
    "rope": xl.rope_halves.layout((9, 24), heads=3, axis=1),
    "three pieces": xl.regroup.layout((9, 24), sizes=(4, 8, 12), groups=2, axis=1),
    "trim": xl.trim.layout((9, 24), to=19, axis=1),
    "pad": xl.pad.layout((9, 24), to=29, axis=1),
    "other rows": xl.trim.layout((9, 24), to=7) >> xl.pad.layout((7, 24), to=8),
    "several in": xl.fuse_qkv.layout((8, 3), (4, 3), (4, 3), heads=2, kv_heads=1),
    "several out": xl.interleave.layout((16, 3))
    >> xl.split_qkv.layout((16, 3), heads=2, kv_heads=1),
}
BACKENDS = ("eager", "aot_eager", "inductor")


def values(shape: tuple[int, ...], seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


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
    layout, backend = LAYOUTS[name], EagerAndRecordGraphs()
    torch.compile(layout, fullgraph=True, backend=backend)(*inputs(layout))
    (graph,) = backend.graphs
    assert str(graph.graph).count("target=torch.ops.xlayout.relayout") == 1


@pytest.mark.usefixtures("always")
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
def test_derivatives_of_every_kind() -> None:
    layout = LAYOUTS["three pieces"]
    call = torch.compile(layout, fullgraph=True, backend="eager")
    x = values(layout.in_shape).double().requires_grad_()
    for y in (x, x.detach()):
        call(y)  # from torch 2.14 on it compiles nothing for an input with a tangent

    def cube(x: Any) -> Any:
        return call(x) ** 3

    assert torch.autograd.gradcheck(cube, x, check_forward_ad=True, check_backward_ad=False)
    assert torch.autograd.gradgradcheck(cube, x, check_fwd_over_rev=True)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["transpose", "several in", "several out"])
@pytest.mark.parametrize("which", [0, -1])
def test_a_program_compiled_before_a_dual_level_keeps_tangents(
    which: int, name: str, backend: str
) -> None:
    layout = LAYOUTS[name]
    call = torch.compile(layout, fullgraph=True, backend=backend)
    xs = inputs(layout)
    call(*xs)
    tangents = [torch.zeros_like(x) for x in xs]
    tangents[which] = xs[which] + 1
    with forward_ad.dual_level():
        given = xs.copy()
        given[which] = forward_ad.make_dual(xs[which], tangents[which])
        made = [forward_ad.unpack_dual(y) for y in leaves(call(*given))]
    agree(tuple(y.primal for y in made), layout(*xs))
    agree(tuple(y.tangent for y in made), layout(*tangents))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_dual_level_within_a_program(backend: str) -> None:
    layout = LAYOUTS["transpose"]

    def tangent(x: Any) -> Any:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(layout(forward_ad.make_dual(x, x + 1) * 2)).tangent

    (x,) = inputs(layout)
    agree(torch.compile(tangent, fullgraph=True, backend=backend)(x), layout(2 * x + 2))


@pytest.mark.parametrize("name", LAYOUTS)
def test_under_transforms_the_operation_moves_what_autocast_refuses(name: str) -> None:
    layout = LAYOUTS[name]
    form = form_of(layout, False, True)
    xs = [x.half() for x in inputs(layout)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = torch.func.vmap(lambda *xs: relayout(xs, form))(*[x[None] for x in xs])
    agree(tuple(y[0] for y in made), layout(*xs))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which the check reads in torch 2.14
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_operation_keeps_the_rules_of_torch(name: str) -> None:
    layout = LAYOUTS[name]
    xs = [x.requires_grad_() for x in inputs(layout)]
    relayout = torch.ops.xlayout.relayout
    for op in [relayout.default] + [relayout.one] * (len(layout.out_shapes) == 1):
        torch.library.opcheck(op, (xs, form_of(layout, False)))


@settings(max_examples=100)
@given(
    st.one_of(bijections(24), several(max_size=48)),
    st.sampled_from([torch.uint8, torch.bfloat16, torch.float32, torch.complex128]),
)
def test_the_operation_of_any_layout(layout: Layout, dtype: Any) -> None:
    form = form_of(layout, False)
    if form is None:
        return
    numbers = [
        np.arange(k, k + np.prod(s), dtype=np.float32).reshape(s)
        for k, s in enumerate(layout.in_shapes, 1)
    ]
    arrays = [torch.from_numpy(x).to(dtype) for x in numbers]
    strided = [torch.stack([x, x], -1)[..., 0] for x in arrays]
    wanted = [torch.from_numpy(y).to(dtype) for y in by_table(layout, numbers)]
    for xs in (arrays, strided):
        agree(tuple(torch.ops.xlayout.relayout(xs, form)), tuple(wanted))
        with xl.native(False):
            agree(tuple(torch.ops.xlayout.relayout(xs, form)), tuple(wanted))
    assert parse(form).inverse().inverse() == parse(form)
    back = tuple(torch.ops.xlayout.relayout(wanted, repr(tuple(parse(form).inverse()))))
    again = by_table(layout.inverse(), [y.real.to(torch.float32).numpy() for y in wanted])
    agree(back, tuple(torch.from_numpy(x).to(dtype) for x in again))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "padded",
    [lambda x, v: xl.pad(x, axis=1, to=29, value=v), lambda x, v: LAYOUTS["pad"](x, fill=v)],
    ids=["an op", "a layout"],
)
@pytest.mark.parametrize("numbers", [(0, 1, 2, 3, 0), (1.5, 0, 2.5, -0.0), (4, 0, 5)])
def test_zeros_alone_are_its_holes(padded: Any, numbers: tuple[float, ...]) -> None:
    x = values((9, 24))
    found = EagerAndRecordGraphs()
    call = torch.compile(padded, fullgraph=True, backend=found)
    for value in numbers:
        wanted = torch.nn.functional.pad(x, (0, 5), value=value)
        made = call(x, value)
        assert torch.equal(made.view(torch.int32), wanted.view(torch.int32))
    texts = [str(graph.graph) for graph in found.graphs]
    assert sum("xlayout.relayout" in text for text in texts) == 1


def test_holes_break_no_runs() -> None:
    form = parse(form_of(LAYOUTS["pad"], False) or "")
    assert (form.run, form.kind) == (24, "turn")
    assert parse(repr(tuple(form.inverse()))).run == 24


def test_what_has_no_operation() -> None:
    assert form_of(xl.pad.layout((3,), to=5), False, zero=False) is None
    assert (
        form_of(Layout(((3,),), ((2, 3),), (Piece(0, 0, ((2, 0, 3), (3, 1, 1))),)), False) is None
    )
    assert form_of(Layout.slice((12,), 1, 5), True) is None  # a view, which is allowed
    every_other = xl.deinterleave.layout((64,)) >> Layout.slice((64,), 0, 31)
    for scattered in (every_other, every_other.inverse()):  # its holes, or those of the way back
        assert form_of(scattered, False) is None
