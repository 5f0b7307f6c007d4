"""The call from XLA moves every element where the index table says, and never leaves a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental.layout import Format
from jax.experimental.layout import Layout as Order

import xlayout as xl
from tests.house.tree import printed
from tests.strategies import bijections, factorisations, several, shapes, stretches
from tests.table import by_table
from xlayout import Layout
from xlayout.lower.holes import copied_holes
from xlayout_jax import native
from xlayout_native.strided import ZEROS


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every layout a call, however small, and however long its runs."""
    for gates, name in ((native.TRACED, "small"), (native.LOWERED, "by rows")):
        monkeypatch.delitem(gates, name)


def called(function: Any, *arrays: Any) -> bool:
    """Whether the compiled program has a call of the kernel."""
    return native.TARGET in jax.jit(function).lower(*arrays).compile().as_text()


def bits(results: Any) -> list[tuple[Any, ...]]:
    """Shape, dtype and bytes of every result."""
    listed = results if isinstance(results, (tuple, list)) else [results]
    return [(np.asarray(y).shape, np.asarray(y).dtype, np.asarray(y).tobytes()) for y in listed]


@st.composite
def moved(draw: st.DrawFn) -> Layout:
    """A bijection of one to three arrays on either side, in shapes of odd sizes."""
    n = int(np.prod(draw(shapes(max_size=240, min_axes=1))))
    layout = draw(bijections(n))
    return layout.regrouped(
        [draw(factorisations(k)) for k in draw(stretches(n, most=3))],
        [draw(factorisations(k)) for k in draw(stretches(n, most=3))],
    )


@settings(max_examples=40)
@given(moved())
def test_it_follows_the_index_table(layout: Layout) -> None:
    arrays = [
        np.arange(np.prod(s, dtype=int), dtype=np.int32).reshape(s) + 1000 * k
        for k, s in enumerate(layout.in_shapes)
    ]
    function = jax.jit(lambda *xs: layout(*xs))
    regroups = layout.is_identity and len(layout.in_shapes) == len(layout.out_shapes) == 1
    assert regroups or native.TARGET in function.lower(*arrays).as_text()
    assert bits(function(*arrays)) == bits(by_table(layout, arrays))


@settings(max_examples=60)
@given(several())
def test_what_is_dropped_and_what_is_missing_follow_it_too(layout: Layout) -> None:
    arrays = [
        np.arange(1, np.prod(s, dtype=int) + 1, dtype=np.int32).reshape(s) for s in layout.in_shapes
    ]
    function = jax.jit(lambda *xs: layout(*xs))
    regroups = layout.is_identity and len(layout.in_shapes) == len(layout.out_shapes) == 1
    moved = not layout.repeats and copied_holes(layout, ZEROS) is not None
    assert (native.TARGET in function.lower(*arrays).as_text()) == (moved and not regroups)
    assert bits(function(*arrays)) == bits(by_table(layout, arrays))


@pytest.mark.parametrize("value", [1, -0.0, 0.5])
def test_holes_of_other_values_are_xlas(value: float) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert called(lambda x: xl.pad(x, axis=1, to=5, value=0), x)
    assert not called(lambda x: xl.pad(x, axis=1, to=5, value=value), x)
    wanted = bits(np.pad(x, ((0, 0), (0, 2)), constant_values=value))
    assert bits(jax.jit(lambda x: xl.pad(x, axis=1, to=5, value=value))(x)) == wanted
    assert bits(xl.pad(jax.numpy.asarray(x), axis=1, to=5, value=value)) == wanted


@pytest.mark.parametrize("name", native.DTYPES)
def test_every_dtype_of_whole_bytes_keeps_its_bits(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    layout = xl.interleave.layout((7, 22), axis=1)
    raw = np.random.default_rng(0).integers(0, 2 if name == "bool" else 256, 154 * dtype.itemsize)
    x = raw.astype(np.uint8).view(dtype).reshape(7, 22)
    with jax.enable_x64(True):
        given = jax.device_put(x)
        assert given.dtype == dtype
        assert called(layout, given)
        assert bits(layout(given)) == bits(by_table(layout, [x]))
        if name != "float8_e8m0fnu":  # it has no zero
            padded = xl.pad.layout((7, 22), axis=1, to=9000)  # more than a row of zeros
            assert called(padded, given)
            assert bits(padded(given)) == bits(by_table(padded, [x]))


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "float4_e2m1fn"])
def test_elements_of_less_than_a_byte_stay_with_xla(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = (np.arange(40) % 2).astype(dtype).reshape(4, 10)
    given = jax.device_put(x)
    assert given.dtype == dtype
    assert not called(xl.matrix_transpose, given)
    assert bits(xl.matrix_transpose(given)) == bits(x.T.copy())


def test_keys_stay_with_jax() -> None:
    keys = jax.random.split(jax.random.key(0), (4, 6))
    made = jax.jit(xl.matrix_transpose)(keys)
    assert (jax.random.key_data(made) == jax.random.key_data(keys).swapaxes(0, 1)).all()


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_nothing_is_moved_where_there_is_nothing(shape: tuple[int, int]) -> None:
    made = jax.jit(xl.matrix_transpose)(np.zeros(shape, np.float32))
    assert made.shape == shape[::-1]


def test_a_gap_of_one_axis_is_no_gap() -> None:
    x = np.arange(30, dtype=np.int16).reshape(1, 5, 1, 6)
    assert bits(jax.jit(lambda x: xl.permute_dims(x, (3, 2, 1, 0)))(x)) == bits(
        x.transpose(3, 2, 1, 0).copy()
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_operands_are_read_as_they_lie(order: tuple[int, ...]) -> None:
    x = np.arange(5 * 8 * 6, dtype=np.float32).reshape(5, 8, 6)
    place = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    given = jax.device_put(x, Format(Order(order), place))
    layout = xl.interleave.layout(x.shape, axis=1)
    compiled = jax.jit(layout).lower(given).compile()
    assert native.TARGET in compiled.as_text()
    assert compiled.memory_analysis().temp_size_in_bytes == 0
    assert bits(layout(given)) == bits(by_table(layout, [x]))


@pytest.mark.parametrize("orders", [((0, 1), (1, 0)), ((1, 0), (0, 1)), ((1, 0), (1, 0))])
def test_each_operand_is_read_as_it_lies(orders: tuple[tuple[int, ...], ...]) -> None:
    values = [np.arange(48, dtype=np.float32).reshape(8, 6) + 48 * k for k in range(2)]
    place = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    given = [
        jax.device_put(x, Format(Order(order), place))
        for x, order in zip(values, orders, strict=True)
    ]
    layout = xl.stack.layout([(8, 6)] * 2, axis=2)
    compiled = jax.jit(layout).lower(*given).compile()
    assert native.TARGET in compiled.as_text()
    assert compiled.memory_analysis().temp_size_in_bytes == 0
    assert bits(layout(*given)) == bits(by_table(layout, values))


@pytest.mark.parametrize("size", [1 << 10, 1 << 23])
def test_small_and_large_are_the_same(size: int) -> None:
    x = np.random.default_rng(0).integers(0, 256, size, np.uint8).reshape(-1, 64)
    made = jax.jit(lambda x: xl.interleave(x, axis=1))(x)
    assert bits(made) == bits(x.reshape(-1, 2, 32).swapaxes(1, 2).reshape(x.shape))


def test_calls_at_the_same_time_do_not_meet() -> None:
    function = jax.jit(lambda x: xl.interleave(x, axis=1))
    given = [np.full((512, 1024), k, np.float32) + np.arange(1024) for k in range(4)]
    wanted = [x.reshape(512, 2, 512).swapaxes(1, 2).reshape(x.shape) for x in given]

    def same(k: int) -> bool:
        return all(np.array_equal(function(given[k]), wanted[k]) for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(same, range(4)))


@pytest.mark.parametrize("flags", ["--xla_cpu_multi_thread_eigen=false", ""])
def test_it_runs_where_xla_has_one_thread(flags: str) -> None:
    code = """
        import jax, jax.numpy as jnp, xlayout as xl
        x = jnp.arange(1 << 21).reshape(1024, 2048)
        y = jax.jit(xl.matrix_transpose)(x)
        assert (y == x.T).all() and y.shape == (2048, 1024)
        """
    printed(code, quiet=True, XLA_FLAGS=flags)


# -- the call on its own --------------------------------------------------------------------------


def raw(moves: Sequence[int], *, results: Any = ((6,),), dtype: Any = np.float32) -> Any:
    """The call with these numbers, on six floats."""
    assert not native._refused()  # registers the call if it was not yet
    made = [jax.ShapeDtypeStruct(shape, dtype) for shape in results]
    x = np.arange(6, dtype=np.float32)
    return jax.ffi.ffi_call(native.TARGET, made)(x, moves=np.array(moves, np.int64))


def test_moves_are_numbers_in_the_call() -> None:
    (made,) = raw([0, 0, 5, 0, 1, 6, -1, 1])
    assert made.tolist() == [5, 4, 3, 2, 1, 0]
    (made,) = raw([0, 0, 0, 0, 2, 1, 1 << 62, 1 << 62, 6, 1, 1])  # a loop of one step does not move
    assert made.tolist() == [0, 1, 2, 3, 4, 5]
    (made,) = raw([0, 0, 0, 0, 1, 4, 1, 1, 1, 0, (1 << 14) - 2, 4, 1, 2, 1, 1])  # and the zeros
    assert made.tolist() == [0, 1, 2, 3, 0, 0]
    first, second = raw([0, 0, 0, 0, 1, 3, 2, 1, 0, 1, 1, 0, 1, 3, 2, 1], results=((3,), (3,)))
    assert (first.tolist(), second.tolist()) == ([0, 2, 4], [1, 3, 5])


@pytest.mark.parametrize(
    "moves",
    [
        [0, 0, 0, 0, 1, 7, 1, 1],  # past the end of both
        [0, 0, 1, 0, 1, 6, 1, 1],  # past the end of the operand
        [0, 0, 0, 1, 1, 6, 1, 1],  # past the end of the result
        [0, 0, 0, 0, 1, 6, -1, 1],  # before the operand
        [0, 0, -1, 0, 1, 2, 1, 1],
        [0, 0, 0, 0, 2, 2, 1, 1, 6, 1, 1],  # the two loops together
        [0, 0, 0, 0, 1, 2, 1 << 62, 1],
        [0, 0, 0, 0, 1, 1 << 62, 1 << 62, 1],  # a product that overflows
        [2, 0, 0, 0, 1, 6, 1, 1],  # no such operand
        [1, 0, 1 << 14, 0, 1, 1, 1, 1],  # past the end of the zeros
        [1, 0, 0, 0, 1, 6, -1, 1],  # before them
        [0, 1, 0, 0, 1, 6, 1, 1],  # no such result
        [-1, 0, 0, 0, 1, 6, 1, 1],
        [0, 0, 0, 0, 1, 6, 1, 0],  # every element to one place
        [0, 0, 0, 0, 1, -6, 1, 1],
        [0, 0, 0, 0, 2, 6, 1, 1, 2, 0, 0],  # more elements than the result has
        [0, 0, 0, 0, 4, *(6, 0, 1) * 4],
        [0, 0, 0, 0, 16, *(1, 1, 1) * 16],  # more loops than a plan has
        [0, 0, 0, 0, 2, 6, 1, 1],  # fewer numbers than it says
        [0, 0, 0, 0],
    ],
)
def test_moves_that_leave_the_buffers_are_refused(moves: list[int]) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="malformed, or leave the buffers"):
        jax.block_until_ready(raw(moves))


@pytest.mark.parametrize("name", ["int8", "int16", "int4"])
def test_a_result_of_another_width_is_refused(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    with pytest.raises(jax.errors.JaxRuntimeError, match="malformed, or leave the buffers"):
        jax.block_until_ready(raw([0, 0, 0, 0, 1, 6, 1, 1], dtype=dtype))


@pytest.mark.parametrize("attributes", [{}, {"moves": np.zeros(1, np.int32)}, {"moves": 1}])
def test_a_call_without_moves_is_refused(attributes: dict[str, Any]) -> None:
    assert not native._refused()
    made = jax.ShapeDtypeStruct((6,), np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="wanted moves, an array of int64"):
        jax.block_until_ready(
            jax.ffi.ffi_call(native.TARGET, made)(np.zeros(6, np.float32), **attributes)
        )
