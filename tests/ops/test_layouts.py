"""Any layout runs in every framework, eager and traced, exactly as its index table says."""

from __future__ import annotations

import ctypes
import tracemalloc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

import xlayout as xl
from tests.frameworks import Framework, Jax, Numpy, Torch
from tests.ops.examples import flat, numbered
from tests.strategies import bijections, layouts, strided
from tests.table import UNCUT as FLAT
from tests.table import by_table
from xlayout import Layout, Piece
from xlayout.errors import ShapeError
from xlayout.lower import recipe


def check(framework: Framework, layout: Layout, run: Callable[..., Any], fill: int = 0) -> None:
    values = numbered(layout.in_shapes)
    made = run(*(framework.array(x) for x in values))
    for y, want in zip(flat(made), by_table(layout, values, fill), strict=True):
        assert framework.numpy(y).tolist() == want.tolist()


@given(layouts())
def test_numpy_and_torch_run_any_layout(layout: Layout) -> None:
    for framework in (Numpy(), Numpy("numpy:readonly", writeable=False), Torch()):
        check(framework, layout, layout)
        check(framework, layout, lambda x: xl.apply(layout, x, fill=9), fill=9)


@settings(max_examples=15)
@given(layouts())
def test_jax_runs_any_layout(layout: Layout) -> None:
    check(Jax(), layout, layout)


@settings(max_examples=15)
@given(layouts())
def test_jit_runs_any_layout(layout: Layout) -> None:
    check(Jax(), layout, jax.jit(layout))


@given(layouts())
def test_autograd_runs_any_layout(layout: Layout) -> None:
    (values,) = numbered(layout.in_shapes, np.float64)
    x = torch.from_numpy(values).requires_grad_()
    y = layout(x)
    assert y.detach().numpy().tolist() == by_table(layout, [values])[0].tolist()
    g = torch.arange(1.0, y.numel() + 1, dtype=torch.float64).reshape(y.shape)
    if y.requires_grad:
        y.backward(g)
    want = np.zeros(values.size)
    table = layout.index()
    np.add.at(want, table[table >= 0], g.numpy().ravel()[table >= 0])
    if x.grad is not None or want.any():
        assert x.grad is not None
        assert x.grad.numpy().ravel().tolist() == want.tolist()


@given(st.data())
def test_any_layout_of_any_strided_memory(data: DataObject) -> None:
    layout = data.draw(layouts())
    x = data.draw(strided(layout.in_shape))
    (want,) = by_table(layout, [x])
    for copy in (True, None):
        assert layout(x, copy=copy).tolist() == want.tolist()
    out = np.full(layout.out_shape, -1, x.dtype)
    assert layout(x, out=out) is out
    assert out.tolist() == want.tolist()
    if layout.as_view([s // x.itemsize for s in x.strides]) is not None:
        assert layout(x, copy=False).tolist() == want.tolist()
    if min(x.strides, default=0) >= 0:
        assert layout(_as_torch(x)).tolist() == want.tolist()


def _as_torch(x: np.ndarray) -> torch.Tensor:
    """The same elements under the same strides."""
    low, high = np.lib.array_utils.byte_bounds(x)
    memory = np.frombuffer((ctypes.c_char * (high - low)).from_address(low), x.dtype).copy()
    strides = [s // x.itemsize for s in x.strides]
    return torch.from_numpy(memory).as_strided(x.shape, strides)


@given(bijections(24))
def test_a_layout_and_its_inverse_cancel(layout: Layout) -> None:
    x = np.arange(24)
    assert (layout >> layout.inverse())(x.reshape(layout.in_shape)).ravel().tolist() == x.tolist()
    there = torch.from_numpy(x.reshape(layout.in_shape).copy())
    assert layout.inverse()(layout(there)).flatten().tolist() == x.tolist()


# -- several arrays, holes and tables --------------------------------------------------------------

WOVEN = Layout(
    ((4,), (2, 2), (3,)),
    ((5,), (2, 4)),
    (Piece(0, 1, ((4, 1, 1),)), Piece(4, 5, ((4, 1, 2),)), Piece(8, 6, ((3, 1, 2),))),
)
"""Three inputs, two outputs, two holes; the second and third input are woven."""

UNCUT = FLAT.regrouped([(2, 21)], [(2, 21)])


def test_several_inputs_and_outputs_with_holes(backend: Framework) -> None:
    values = numbered(WOVEN.in_shapes)
    assert [y.tolist() for y in by_table(WOVEN, values, fill=-7)] == [
        [-7, 1, 2, 3, 4],
        [[5, 9, 6, 10], [7, 11, 8, -7]],
    ]
    given = [backend.array(x) for x in values]
    for made in (
        backend.call(lambda *xs: WOVEN(*xs, fill=-7), *given),
        backend.call(lambda *xs: xl.apply(WOVEN, xs, fill=-7), *given),
    ):
        assert isinstance(made, tuple)
        for y, want in zip(made, by_table(WOVEN, values, fill=-7), strict=True):
            assert backend.numpy(y).tolist() == want.tolist()


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (2, 0), (0, 1, 2)])
def test_arrays_are_stacked_in_any_order(backend: Framework, order: tuple[int, ...]) -> None:
    pieces = tuple(Piece(6 * k, 6 * to, ((6, 1, 1),)) for to, k in enumerate(order))
    layout = Layout(((2, 3),) * 3, ((len(order), 2, 3),), pieces)
    values = numbered(layout.in_shapes)
    made = backend.call(layout, *map(backend.array, values))
    assert backend.numpy(made).tolist() == [values[k].tolist() for k in order]


def test_an_output_that_nothing_reaches_is_all_fill(backend: Framework) -> None:
    empty = Layout(((2,),), ((3,), (2,)), (Piece(0, 3, ((2, 1, 1),)),))
    made = backend.call(lambda x: empty(x, fill=5), backend.array(np.array([1, 2], np.int32)))
    assert [backend.numpy(y).tolist() for y in made] == [[5, 5, 5], [1, 2]]


def test_a_broadcast_layout_repeats(backend: Framework) -> None:
    repeat = Layout(((3,),), ((3, 2),), (Piece(0, 0, ((3, 1, 2), (2, 0, 1))),))
    made = backend.call(repeat, backend.array(np.array([1, 2, 3], np.int32)))
    assert backend.numpy(made).tolist() == [[1, 1], [2, 2], [3, 3]]


def test_its_table_is_needed() -> None:
    assert recipe.program_of(UNCUT).gathers
    assert UNCUT.is_bijection


def test_a_table_gives_the_same_values(backend: Framework) -> None:
    values = numbered(UNCUT.in_shapes)
    made = backend.call(UNCUT, backend.array(values[0]))
    (want,) = by_table(UNCUT, values)
    assert backend.numpy(made).tolist() == want.tolist()


def test_the_holes_of_a_table_are_filled(backend: Framework) -> None:
    layout = UNCUT >> Layout.pad(UNCUT.out_shape, 4)
    assert recipe.program_of(layout).gathers
    (values,) = numbered(UNCUT.in_shapes)
    made = backend.call(lambda x: layout(x, fill=-7), backend.array(values))
    assert backend.numpy(made).tolist() == by_table(layout, [values], -7)[0].tolist()


@pytest.mark.parametrize("framework", [Numpy(), Torch()], ids=lambda f: f.name)
def test_large_arrays_take_no_table(framework: Framework) -> None:
    layout = UNCUT.lift((1 << 17,))
    assert recipe.program_of(layout).gathers
    (values,) = numbered(layout.in_shapes, np.int8)
    x = framework.array(values)
    tracemalloc.start()
    made = layout(x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * values.nbytes
    assert np.array_equal(framework.numpy(made), by_table(layout, [values])[0])


def test_a_table_goes_through_every_tracer() -> None:
    (values,) = numbered(UNCUT.in_shapes, np.float64)
    x = torch.from_numpy(values)
    (want,) = by_table(UNCUT, [values])
    torch._dynamo.reset()
    assert torch.compile(UNCUT, fullgraph=True, backend="eager")(x).tolist() == want.tolist()
    both = [want.tolist(), (-want).tolist()]
    assert torch.func.vmap(UNCUT)(torch.stack([x, -x])).tolist() == both
    assert jax.jit(jax.vmap(UNCUT))(np.stack([values, -values])).tolist() == both
    assert torch.autograd.gradcheck(UNCUT, x.requires_grad_())
    assert jax.grad(lambda x: (UNCUT(x) ** 2).sum())(values).tolist() == (2 * values).tolist()


TRACED = {
    "jax": (jax.jit, jax.numpy.zeros),
    "torch": (lambda f: torch.compile(f, backend="eager"), torch.zeros),
}


@pytest.mark.parametrize("framework", TRACED)
def test_to_a_tracer_memory_means_nothing(framework: str) -> None:
    trace, zeros = TRACED[framework]
    turned = Layout.permute((2, 3), (1, 0))
    for options, error in (({"copy": False}, BufferError), ({"out": zeros((3, 2))}, TypeError)):
        with pytest.raises(error, match="while tracing"):
            trace(lambda x, o=options: turned(x, **o))(zeros((2, 3)))


def test_large_layouts_are_written_piece_by_piece() -> None:
    rows = recipe._SMALL // 100
    weave = Layout.parse("(q + k) h -> h (k + q)", (3 * rows, 100), q=rows)
    (values,) = numbered(weave.in_shapes)
    turned = np.ascontiguousarray(values.T).T
    (want,) = by_table(weave, [values])
    for x in (values, turned):
        assert np.array_equal(weave(x), want)
        assert np.array_equal(weave(torch.from_numpy(x)), want)


def test_large_holes_are_filled() -> None:
    to = recipe._SMALL + 5
    for x in (np.ones(7), torch.ones(7)):
        y = xl.pad(x, to=to, value=3)
        assert [float(y[6]), float(y[7]), float(y[-1])] == [1, 3, 3]


@pytest.mark.parametrize("kind", [tuple, list])
def test_several_arrays_may_come_in_one_tuple_or_list(kind: Any) -> None:
    joined = xl.Layout.concat([(2,), (3,)])
    parts = kind((np.arange(2), np.arange(3)))
    assert joined(parts).tolist() == joined(*parts).tolist() == xl.apply(joined, parts).tolist()


def test_an_array_of_another_shape_is_refused(backend: Framework) -> None:
    match = r"x: an array of shape \(5,\); the layout takes \(2, 21\)"
    with pytest.raises(ShapeError, match=match):
        backend.call(UNCUT, backend.array(np.zeros(5, np.int32)))
    fuse = xl.fuse_qkv.layout((8, 4), (4, 4), (4, 4), heads=2, kv_heads=1)
    given = [backend.array(np.zeros(shape, np.int32)) for shape in ((8, 4), (4, 5), (4, 4))]
    told = r"arrays: 1 is of shape \(4, 5\); the layout takes \(4, 4\)"
    with pytest.raises(ShapeError, match=told):
        backend.call(fuse, *given)
    with pytest.raises(ShapeError, match="layout: takes 3 arrays, 1 given"):
        backend.call(WOVEN, backend.array(np.zeros(5, np.int32)))


def test_arrays_of_two_devices_are_refused_whatever_ran_before() -> None:
    for side in (4, 256):
        joined = xl.stack.layout([(side, side), (side, side)])
        here, nowhere = torch.zeros(side, side), torch.empty(side, side, device="meta")
        for _ in range(2):
            with pytest.raises(TypeError, match=r"arrays: 0 is torch.float32 on cpu, 1 .* on meta"):
                joined(here, nowhere)
            with pytest.raises(TypeError, match=r"arrays: 0 is torch.float32 on meta, 1 .* on cpu"):
                joined(nowhere, here)
            joined(here, here)


def test_nothing_moves_where_there_is_nothing(backend: Framework) -> None:
    for layout in (
        Layout.identity((0, 3)),
        Layout.slice((4, 2), 2, 2),
        Layout.permute((0, 2, 3), (2, 0, 1)),
    ):
        made = backend.call(layout, backend.array(np.zeros(layout.in_shape, np.int32)))
        assert backend.numpy(made).shape == layout.out_shape


def test_a_layout_without_outputs_makes_nothing(backend: Framework) -> None:
    x = backend.array(np.zeros(2, np.float32))
    assert backend.call(Layout(((2,), (2,)), (), ()), x, x) == ()


def test_several_shapes_in_a_pattern_may_be_given_as_one() -> None:
    for shape in ((2, 3), ((2,), (3,))):
        made = xl.rearrange.layout(shape, "a, b -> (a + b)")
        assert made == Layout.parse("a, b -> (a + b)", (2, 3)) == Layout.concat([(2,), (3,)])


@pytest.mark.parametrize(
    ("layouts", "arrays", "text"),
    [
        ([Layout.identity(2)], [3], r"arrays\[0\]: expected a torch.Tensor, jax.Array or"),
        (Layout.identity(2), [np.ones(2)], "layouts: a Layout; wanted a sequence of layouts"),
        ({Layout.identity(2)}, [np.ones(2)], "layouts: a set; wanted a sequence of layouts"),
        ([], 3, "arrays: an int; wanted a sequence of arrays"),
    ],
)
def test_many_takes_sequences_of_arrays(layouts: Any, arrays: Any, text: str) -> None:
    with pytest.raises(TypeError, match=f"^{text}"):
        xl.apply_many(layouts, arrays)
