"""torch and numpy give the same bits with the kernel as without, and use it when it is faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import xlayout as xl
import xlayout_native
from xlayout_native.strided import LARGE, one_move, plan_where_faster

OPS: dict[str, Callable[[Any], Any]] = {
    "transpose": xl.matrix_transpose,
    "zip": lambda x: xl.interleave(x, axis=1),
    "unzip": lambda x: xl.deinterleave(x, axis=1),
    "rope": lambda x: xl.rope_halves(x, heads=4, axis=1),
    "split": lambda x: xl.split_qkv(x, heads=8, kv_heads=2, axis=1),
    "tiles": lambda x: xl.to_tiles(x, grid=(3, 2)),
    "pattern": lambda x: xl.rearrange(x, "(a b) (c d) -> c b (a d)", a=4, d=8),
}
TORCH = [torch.bfloat16, torch.float32, torch.uint8, torch.complex128, torch.float8_e4m3fn]
NUMPY = ["float32", "int8", "complex128", ml_dtypes.bfloat16, "M8[s]", [("a", "i2"), ("b", "u1")]]
SHAPE = (480, 384)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of threads of each run."""
    asked: list[int] = []
    for name in ("run", "run_arrays"):
        own = getattr(xlayout_native, name)

        def counted(plan: Any, threads: int, *buffers: Any, own: Any = own) -> Any:
            done = own(plan, threads, *buffers)
            if done is not False:
                asked.append(threads)
            return done

        monkeypatch.setattr(xlayout_native, name, counted)
    return asked


def without(op: Callable[[Any], Any], x: Any) -> Any:
    """The op without the kernel."""
    with xl.native(False):
        return op(x)


def flat(x: Any) -> list[Any]:
    """The arrays in nested tuples and lists."""
    return [y for part in x for y in flat(part)] if isinstance(x, (tuple, list)) else [x]


def bits(x: Any) -> list[tuple[Any, ...]]:
    """Shape, dtype, strides and bytes of every result."""
    if isinstance(x, torch.Tensor):
        x = [x]
    if isinstance(x, np.ndarray):
        x = [x]
    return [
        (tuple(y.shape), y.dtype, y.stride(), y.view(torch.uint8).numpy().tobytes())
        if isinstance(y, torch.Tensor)
        else (y.shape, y.dtype, y.strides, y.tobytes())
        for y in flat(x)
    ]


def tensors(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The same bytes under several arrangements in memory."""
    width = dtype.itemsize
    raw = (
        torch.arange(SHAPE[0] * SHAPE[1] * width, dtype=torch.int64).mul(2654435761).to(torch.uint8)
    )
    x = raw.view(dtype).view(SHAPE)
    room = x.new_zeros(SHAPE[0], 2 * SHAPE[1])
    room[:, ::2] = x
    return {"row-major": x, "column-major": x.t().contiguous().t(), "every other": room[:, ::2]}


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("name", OPS)
def test_torch_gives_the_same_bits(name: str, dtype: torch.dtype) -> None:
    for x in tensors(dtype).values():
        assert bits(OPS[name](x)) == bits(without(OPS[name], x))


@pytest.mark.parametrize("dtype", NUMPY, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_numpy_gives_the_same_bits(name: str, dtype: Any) -> None:
    size = np.dtype(dtype).itemsize
    raw = np.arange(SHAPE[0] * SHAPE[1] * size).astype(np.uint8)
    x = raw.view(dtype).reshape(SHAPE)
    for y in (x, np.asfortranarray(x), x[::-1, ::-1], np.repeat(x, 2, 1)[:, ::2]):
        y.flags.writeable = False
        assert bits(OPS[name](y)) == bits(without(OPS[name], y))


@pytest.mark.parametrize("make", [torch.zeros, np.zeros], ids=["torch", "numpy"])
def test_the_kernel_is_used_where_it_is_faster(make: Any, runs: list[int]) -> None:
    xl.matrix_transpose(make((480, 384)))
    xl.interleave(make((480, 384)))  # in rows longer than a line
    assert len(runs) == 2
    xl.matrix_transpose(make((13, 19)))  # a size that no other test has cached
    assert len(runs) == (3 if make is torch.zeros else 2)  # numpy's own call is as cheap
    before = len(runs)
    xl.matrix_transpose(make((48, 64)))
    xl.matrix_transpose(make((128, 256))[:, ::2])  # in an order that small calls do not know
    assert len(runs) == before + 2


@pytest.mark.parametrize("threads", [1, 2])
def test_torch_copies_rows_by_its_own_threads_where_they_cannot_be_shared(
    threads: int, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xlayout_native, "threads_awake", lambda: False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    x, y = torch.randn(480, 384), torch.empty(480, 384)
    for made in (xl.interleave(x), xl.interleave(x, out=y), xl.interleave(x, out=y)):
        assert torch.equal(made, without(xl.interleave, x))
    assert len(runs) == (3 if threads == 1 else 0)
    xl.interleave(torch.zeros(64, LARGE // 256))
    xl.matrix_transpose(x)
    assert len(runs) == (5 if threads == 1 else 2)


def test_a_large_result_is_on_huge_pages(runs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(xlayout_native, "huge_pages", lambda *args: asked.append(args))
    y = xl.interleave(torch.zeros(64, LARGE // 256))
    z = xl.interleave(np.zeros((64, LARGE // 256), np.float32))
    assert asked == [(y.data_ptr(), LARGE), (z.ctypes.data, LARGE)]
    assert len(runs) == 2


def test_so_are_large_parts_of_a_large_result(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(xlayout_native, "huge_pages", lambda *args: asked.append(args))
    x = torch.zeros(24, LARGE // 72)
    q, k, v = xl.split_qkv(x, heads=8, kv_heads=2)
    assert asked == [(q.data_ptr(), q.nbytes)]  # the others are smaller than a few such pages
    assert k.nbytes == v.nbytes < q.nbytes < LARGE
    xl.split_qkv(torch.zeros(24, LARGE // 144), heads=8, kv_heads=2)
    assert len(asked) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_torch_says_how_many_threads(threads: int, runs: list[int]) -> None:
    usual = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        xl.matrix_transpose(torch.zeros(480, 384))
    finally:
        torch.set_num_threads(usual)
    assert runs == [threads]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_parameters_are_plain_while_nothing_is_recorded(mode: Any, runs: list[int]) -> None:
    weight = torch.nn.Parameter(torch.randn(480, 384))
    with mode():
        y = xl.matrix_transpose(weight)
        z = xl.matrix_transpose(weight, out=torch.empty(384, 480))
    assert len(runs) == 2
    assert not y.requires_grad
    assert torch.equal(y, weight.detach().t())
    assert torch.equal(z, y)


@pytest.mark.parametrize("make", [torch.zeros, np.zeros], ids=["torch", "numpy"])
def test_out_is_written_and_nothing_around_it(make: Any, runs: list[int]) -> None:
    x = make(SHAPE) + 7
    room = make((SHAPE[1] + 2, 2 * SHAPE[0] + 2))
    out = room[1:-1, 1:-1:2]
    xl.matrix_transpose(x, out=out)
    assert len(runs) == 1
    assert bool((out == 7).all())
    assert float(room.sum()) == 7 * SHAPE[0] * SHAPE[1]


def test_each_write_into_out_is_a_version(runs: list[int]) -> None:
    out = torch.empty(384, 480)
    before = out._version
    xl.matrix_transpose(torch.zeros(480, 384), out=out)
    assert len(runs) == 1
    assert out._version > before


@pytest.mark.parametrize("calls", [0, 1], ids=["a first call", "a later call"])
def test_a_write_that_a_signal_ends_is_a_version(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = torch.ones(480, 390 + calls), torch.zeros(390 + calls, 480)
    for _ in range(calls):
        xl.matrix_transpose(x, out=out)
    own = xlayout_native.run

    def ended(*given: Any) -> None:
        own(*given)
        raise TimeoutError("now")  # as a handler of signals may

    before = out.zero_()._version
    monkeypatch.setattr(xlayout_native, "run", ended)
    with pytest.raises(TimeoutError, match=r"^now$"):
        xl.matrix_transpose(x, out=out)
    assert bool((out == 1).all())
    assert out._version > before


def test_a_write_that_is_refused_is_no_version() -> None:
    x = torch.zeros(480, 480)
    for _ in range(2):
        xl.matrix_transpose(x, out=torch.empty(480, 480))
        with pytest.raises(xl.ShapeError, match="overlaps an input"):
            xl.matrix_transpose(x, out=x)
        assert x._version == 0


def test_a_write_of_nothing_is_a_version_too() -> None:
    for native in (True, False):
        with xl.native(native):
            alone, (left, right) = torch.empty(4, 0), (torch.empty(6, 2), torch.empty(0, 2))
            for writes in (1, 2):
                xl.matrix_transpose(torch.empty(0, 4), out=alone)
                sizes = {"a": 6, "b": 0}
                xl.rearrange(torch.ones(6, 2), "(a + b) c -> a c, b c", out=(left, right), **sizes)
                assert [y._version for y in (alone, left, right)] == [writes] * 3


def test_numpy_arrays_that_are_not_plain_bytes_are_numpys(tmp_path: Path, runs: list[int]) -> None:
    xl.matrix_transpose(np.full((100, 100), None))
    packed = np.zeros((200, 200), [("a", "u1"), ("b", "f4")])
    xl.matrix_transpose(packed["b"])  # five bytes apart
    file = np.memmap(tmp_path / "x", np.float32, "w+", shape=(200, 200))
    xl.matrix_transpose(file)
    assert runs == []


def copied(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, rivals: bool = False
) -> bool:
    """Whether the kernel should copy this view."""
    return plan_where_faster(one_move(shape, strides), itemsize, 1, 1, rivals) is not None


def test_the_rule() -> None:
    assert not copied((64, 64), (1, 64), 4)  # 16 KB
    assert copied((100, 2, 16), (16, 1600, 1), 16)  # runs of 256 bytes
    assert not copied((100, 2, 16), (16, 1600, 1), 16, rivals=True)
    for rivals in (False, True):
        assert copied((128, 128), (1, 128), 4, rivals)
        assert copied((1 << 22,), (1,), 4, rivals)  # 16 MB
    assert not copied((2,) * 16, (1,) * 16, 4)  # more loops than a plan holds
    assert copied((1,) * 16 + (128, 128), (1 << 61,) * 16 + (1, 128), 4)  # that lead nowhere


def test_the_rule_without_vectors() -> None:
    usual = xlayout_native.get_isa()
    xlayout_native.set_isa("plain")
    try:
        assert copied((128, 128), (1, 128), 4)
        assert copied((128, 128, 2), (256, 1, 128), 4)  # zips
        assert not copied((128, 2, 128), (256, 1, 2), 4)  # unzips
        assert copied((1024, 2, 2048), (4096, 1, 2), 4)  # of 16 MB
    finally:
        xlayout_native.set_isa(usual)
    assert copied((128, 2, 128), (256, 1, 2), 4) is (usual != "plain")


@pytest.mark.parametrize("kind", [torch.zeros, np.zeros], ids=["torch", "numpy"])
def test_many_pieces_are_one_run(kind: Any, runs: list[int]) -> None:
    layers = [kind((LARGE // 64, 2)) + k for k in range(10)]
    stacked = xl.stack(layers)
    assert len(runs) == 1
    assert [float(x.min() + x.max()) for x in stacked] == [2.0 * k for k in range(10)]
