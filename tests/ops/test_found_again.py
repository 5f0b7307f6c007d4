"""What ran for a call runs for the next one like it: nothing is worked out or compiled again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

import xlayout as xl
from tests.frameworks import Framework, Jax, Numpy, Torch
from tests.ops.examples import flat
from xlayout.errors import ShapeError
from xlayout.lower import run
from xlayout.ops import engine
from xlayout.ops.dispatch import unary

CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "by name": (
        lambda x: xl.permute_dims(x, axes=(1, 0)),
        lambda x: xl.permute_dims(x, axes=[1, 0]),
    ),
    "by position": (lambda x: xl.permute_dims(x, (1, 0)), lambda x: xl.permute_dims(x, [1, 0])),
    "beside others": (
        lambda x: xl.regroup(x, sizes=(8, 4, 4), groups=2),
        lambda x: xl.regroup(x, sizes=[8, 4, 4], groups=2),
    ),
    "numbers of numpy": (
        lambda x: xl.interleave(x, groups=2, block=4),
        lambda x: xl.interleave(x, groups=np.int64(2), block=np.int8(4)),
    ),
    "numbers of numpy in a list": (
        lambda x: xl.regroup(x, sizes=(8, 4, 4), groups=2),
        lambda x: xl.regroup(x, sizes=list(np.array([8, 4, 4])), groups=2),
    ),
    "an array of numpy": (
        lambda x: xl.regroup(x, sizes=(8, 4, 4), groups=2),
        lambda x: xl.regroup(x, sizes=np.array([8, 4, 4]), groups=2),
    ),
    "a range": (
        lambda x: xl.permute_dims(x, axes=(0, 1)),
        lambda x: xl.permute_dims(x, axes=range(2)),
    ),
    "what can be read once": (
        lambda x: xl.regroup(x, sizes=(8, 4, 4), groups=2),
        lambda x: xl.regroup(x, sizes=(n for n in (8, 4, 4)), groups=2),
    ),
    "a fill of numpy": (
        lambda x: xl.pad(x, to=20, value=-1.5),
        lambda x: xl.pad(x, to=20, value=np.float32(-1.5)),
    ),
    "tiles": (lambda x: xl.to_tiles(x, grid=(2, 2)), lambda x: xl.to_tiles(x, grid=[2, 2])),
}


@pytest.mark.parametrize("framework", [Numpy(), Torch(), Jax()], ids=lambda f: f.name)
@pytest.mark.parametrize("name", CALLS)
def test_a_list_or_a_number_of_numpy_finds_what_plain_values_did(
    framework: Framework, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, other = CALLS[name]
    values = np.arange(256, dtype=np.float32).reshape(16, 16)
    x = framework.array(values)
    wanted = [framework.numpy(y) for y in flat(plain(x))]
    monkeypatch.delattr(engine, "caller")  # which makes a run from a layout
    for _ in range(2):
        for y, z in zip(flat(other(x)), wanted, strict=True):
            assert np.array_equal(framework.numpy(y), z)


@pytest.mark.parametrize("framework", [Numpy(), Torch(), Jax()], ids=lambda f: f.name)
@pytest.mark.parametrize("comm", ["auto", "local", "native"])
def test_what_is_said_of_many_devices_is_found_for_one_too(
    framework: Framework, comm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = framework.array(values)
    for _ in range(2):
        assert np.array_equal(framework.numpy(xl.matrix_transpose(x, comm=comm)), values.T)
        unsaid: Any = {"out_sharding": None, "in_sharding": None}
        assert np.array_equal(framework.numpy(xl.matrix_transpose(x, **unsaid)), values.T)
        rows = [framework.numpy(y) for y in flat(xl.to_tiles(x, grid=(4, 1), comm=comm))]
        assert np.array_equal(np.concatenate(rows), values)
        monkeypatch.setattr(engine, "caller", None)


@pytest.mark.parametrize("framework", [Numpy(), Torch(), Jax()], ids=lambda f: f.name)
def test_arrays_that_numpy_writes_alike_are_told_apart(framework: Framework) -> None:
    sizes = np.full(2000, 2)  # its repr omits the middle
    other = sizes.copy()
    other[500:502] = 4, 0
    x = framework.array(np.arange(4000, dtype=np.int32))
    for given in (sizes, other, sizes):
        made = framework.numpy(xl.regroup(x, sizes=given, groups=2))
        assert np.array_equal(made, framework.numpy(xl.regroup(x, sizes=(*given,), groups=2)))


@pytest.mark.parametrize("framework", [Numpy(), Torch(), Jax()], ids=lambda f: f.name)
def test_arrays_are_told_apart_by_each_of_their_shapes(framework: Framework) -> None:
    for last in (3, 5, 3):
        values = [np.arange(n, dtype=np.float32).reshape(1, n) for n in (2, 4, last)]
        given = [framework.array(x) for x in values]
        for made in (xl.from_tiles([given]), xl.rearrange(given, "x a, x b, x c -> x (a + b + c)")):
            assert np.array_equal(framework.numpy(made), np.concatenate(values, 1))
        q, k, v = (framework.array(np.zeros(n, np.float32)) for n in (8, last + 1, 4))
        with nullcontext() if last == 3 else pytest.raises(xl.SizeError, match=r"^k: axis 0 = 6"):
            xl.fuse_qkv(q, k, v, heads=2, kv_heads=1)


@pytest.mark.parametrize("framework", [Numpy(), Torch()], ids=lambda f: f.name)
def test_a_list_may_stand_beside_out(framework: Framework) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    for _ in range(3):  # the first way, and as it is found again
        out = framework.array(np.zeros((6, 4), np.float32))
        assert xl.permute_dims(framework.array(values), axes=[1, 0], out=out) is out
        assert np.array_equal(framework.numpy(out), values.T)


def test_a_complex_fill_is_found_by_both_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Jax().array(np.ones(3, np.complex64))
    for _ in range(2):
        for value in (1j, 1 + 0j, complex(-0.0, 1)):
            made = np.asarray(xl.pad(x, to=4, value=value))[3]
            assert (made, np.signbit(made.real)) == (value, np.signbit(value.real))
        monkeypatch.setattr(engine, "caller", None)


@pytest.mark.parametrize("framework", [Numpy(), Torch(), Jax()], ids=lambda f: f.name)
def test_a_zero_of_numpy_finds_what_the_default_did(
    framework: Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, x = xl.pad.layout((3,), to=5), framework.array(np.arange(3, dtype=np.float32))
    layout(x)
    monkeypatch.delattr(run, "_run_uncached")  # the uncached path
    assert framework.numpy(layout(x, fill=np.int64(0))).tolist() == [0, 1, 2, 0, 0]


@pytest.mark.parametrize("framework", [Numpy(), Torch()], ids=lambda f: f.name)
def test_of_fills_without_end_the_last_are_kept(framework: Framework) -> None:
    layout, x = xl.pad.layout((3,), to=5), framework.array(np.arange(3.0))
    for value in range(2500):
        made = layout(x, fill=float(value))
        assert framework.numpy(made).tolist() == [0, 1, 2, value, value]
    assert len(layout._runs) <= 1024
    assert len(run._RUNS[layout]) <= 1024


def test_of_layouts_without_end_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_MOST", 8)
    for rows in range(1, 30):
        x = np.arange(2 * rows).reshape(rows, 2)
        assert np.array_equal(xl.Layout.permute(x.shape, (1, 0))(x), x.T)
    assert len(run._RUNS) <= 8


@pytest.mark.parametrize("framework", [Numpy(), Torch()], ids=lambda f: f.name)
@pytest.mark.parametrize("side", [3, 300])
def test_what_a_layout_cannot_write_it_refuses_whatever_it_wrote(
    framework: Framework, side: int
) -> None:
    def ones(*shape: int, dtype: Any = np.float32) -> Any:
        return framework.array(np.ones(shape, dtype))

    turned, x = xl.Layout.permute((side, side + 1), (1, 0)), ones(side, side + 1)
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        ((ones(side, 2),), {}, xl.ShapeError, "x: an array of shape"),
        ((x, x), {}, xl.ShapeError, "layout: takes 1 arrays, 2 given"),
        ((x,), {"copy": False}, BufferError, "copy=False: a result written to out= is a copy"),
        ((x,), {"copy": 1}, TypeError, "copy: 1; wanted True, False or None"),
        ((x,), {"fill": "a"}, TypeError, "fill: 'a' is a str; wanted a number"),
    ]
    for _ in range(2):
        out = framework.array(np.zeros((side + 1, side), np.float32))
        for arrays, options, error, text in wrong:
            with pytest.raises(error, match=f"^{text}"):
                turned(*arrays, out=out, **options)
            assert not framework.numpy(out).any()
        assert framework.numpy(turned(x, out=out)).all()


@pytest.mark.parametrize("framework", [Numpy(), Torch()], ids=lambda f: f.name)
@pytest.mark.parametrize("side", [3, 300])
def test_several_arrays_are_written_as_they_are_made(framework: Framework, side: int) -> None:
    values = np.arange(side * side, dtype=np.float32).reshape(side, side)
    joined, x = xl.stack.layout([values.shape] * 2, axis=1), framework.array(values)
    wanted = np.stack([values, values], 1)
    for _ in range(3):
        out = framework.array(np.zeros_like(wanted))
        with pytest.raises(TypeError, match="one of each per call"):
            joined(x, framework.array(values.astype(np.float64)), out=out)
        assert not framework.numpy(out).any()
        assert np.array_equal(framework.numpy(joined(x, x)), wanted)
        assert joined(x, x, out=out) is out
        assert np.array_equal(framework.numpy(out), wanted)


def test_of_shapes_without_end_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(shape: tuple[int, ...]) -> xl.Layout:
        return xl.Layout.permute(shape, (1, 0))

    monkeypatch.setattr(engine, "_MOST", 8)
    op = engine.Engine(turned, lambda _ndim, _options: frozenset())
    for rows in range(1, 30):
        x = np.arange(2 * rows).reshape(rows, 2)
        assert np.array_equal(unary(op)(x), x.T)
        assert np.array_equal(unary(op)(x, out=np.zeros_like(x.T)), x.T)
    assert max(map(len, (op.runs, op._layouts))) <= 8


@pytest.mark.parametrize("framework", [Numpy(), Torch()], ids=lambda f: f.name)
@pytest.mark.parametrize("call", [xl.matrix_transpose, xl.matrix_transpose.layout((3, 5))])
def test_what_was_written_is_let_go(framework: Framework, call: Callable[..., Any]) -> None:
    x = framework.array(np.ones((3, 5), np.float32))
    for _ in range(2):
        out = framework.array(np.zeros((5, 3), np.float32))
        gone = weakref.ref(out)
        assert framework.numpy(call(x, out=out)).all()
        del out
        assert gone() is None


@pytest.mark.parametrize("framework", [Numpy(), Torch()], ids=lambda f: f.name)
@pytest.mark.parametrize("grid", [(2, 3), (2, 1), (1, 1)])
def test_tiles_are_written_where_rows_of_them_lie(
    framework: Framework, grid: tuple[int, int]
) -> None:
    values = np.arange(40, dtype=np.int32).reshape(5, 8)
    x, wanted = framework.array(values), xl.to_tiles(values, grid=grid)
    for _ in range(3):  # the first way, and as it is found again
        out = [[framework.array(np.full_like(tile, -1)) for tile in row] for row in wanted]
        assert xl.to_tiles(x, grid=grid, out=out) is out
        for mine, theirs in zip(out, wanted, strict=True):
            for tile, want in zip(mine, theirs, strict=True):
                assert np.array_equal(framework.numpy(tile), want)
        assert xl.to_tiles(x, grid=grid, out=flat(out)) == out


@pytest.mark.parametrize("size", [4, 600])
def test_what_inference_mode_made_is_written_there_alone(size: int) -> None:
    x = torch.ones(size, size)
    with torch.inference_mode():
        out = torch.zeros(size, size)
        assert xl.matrix_transpose(x, out=out).all()
        out.zero_()
    for call in (xl.matrix_transpose, xl.matrix_transpose.layout(x.shape)):
        for _ in range(2):
            with pytest.raises(ShapeError, match="it is an inference tensor, which torch"):
                call(x, out=out)
            assert not out.any()
            call(x, out=torch.zeros(size, size))  # later calls are cached


@pytest.mark.parametrize("framework", [Numpy(), Torch()], ids=lambda f: f.name)
def test_a_tuple_of_one_is_given_back_for_the_one(framework: Framework) -> None:
    x, out = (framework.array(np.zeros(shape)) for shape in ((1, 3), 3))
    for _ in range(3):
        (made,) = xl.unstack(x, out=out)
        assert made is out


@pytest.mark.parametrize(
    "call",
    [
        xl.matrix_transpose,
        lambda x: xl.rearrange([x], "a b -> b a"),
        xl.matrix_transpose.layout((4, 4)),
    ],
)
def test_what_torch_raises_of_a_call_that_is_found_again_is_raised(
    call: Callable[..., Any],
) -> None:
    x = torch.ones(4, 4)
    for _ in range(2):
        call(x)
    x.untyped_storage().resize_(0)  # as FSDP does; no key shows it
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 0"):
        call(x)


@pytest.mark.parametrize("framework", [Numpy(), Torch(), Jax()], ids=lambda f: f.name)
def test_a_layout_that_ran_refuses_other_shapes(framework: Framework) -> None:
    turned, joined = xl.Layout.permute((3, 4), (1, 0)), xl.stack.layout([(3,), (3,)])
    for _ in range(2):
        good, row = (framework.array(np.ones(shape, np.float32)) for shape in ((3, 4), 3))
        assert turned(good).shape == (4, 3)
        assert joined(row, row).shape == (2, 3)
        for shape in ((4, 3), (12,), (3, 5)):
            with pytest.raises(xl.ShapeError, match=r"^x: an array of shape .* takes \(3, 4\)"):
                turned(framework.array(np.ones(shape, np.float32)))
        with pytest.raises(xl.ShapeError, match=r"^arrays: 1 is of shape \(4,\); the layout takes"):
            joined(row, framework.array(np.ones(4, np.float32)))
