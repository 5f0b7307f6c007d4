"""A small layout is one call of the kernel on plain tensors, and torch's own ops on all others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import Parameter

import xlayout as xl
import xlayout_native
from tests.native.test_gates import SITUATIONS
from xlayout_native.strided import ONE_CALL
from xlayout_torch.memory import WIDTHS
from xlayout_torch.small import quick
from xlayout_torch.writer import writer

pytestmark = pytest.mark.skipif(not xlayout_native.available, reason="there is no kernel")

MOVES = ((0, 0, (0, 0, ((512, 64, 1), (64, 1, 512)))),)  # for the tensors that the situations make
TURN = ((0, 0, (0, 0, ((3, 4, 1), (4, 1, 3)))),)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The runs that were requested; none takes place."""
    runs: list[Any] = []
    monkeypatch.setattr(xlayout_native, "run", lambda *args: runs.append(args))
    return runs


def framework(*_arrays: Any) -> str:
    return "framework"


def on_one(x: Any) -> Any:
    return quick(framework, MOVES, 1, [tuple(x.shape)])(x)


def on_two(x: Any) -> Any:
    moves = (*MOVES, (1, 0, MOVES[0][2]))
    return quick(framework, moves, 2, [tuple(x.shape)])(torch.empty_like(x), x)


@pytest.mark.parametrize("form", [on_one, on_two])
@pytest.mark.parametrize("make", [torch.zeros, lambda *n: Parameter(torch.zeros(*n), False)])
def test_a_plain_tensor_goes_to_the_kernel(
    form: Callable[..., Any], make: Any, asked: list[Any]
) -> None:
    assert form(make(8, 4)) != "framework"
    with torch.inference_mode():
        assert form(make(8, 4)) != "framework"
    with torch.no_grad():
        assert form(torch.zeros(8, 4, requires_grad=True)) != "framework"
    assert len(asked) == 3


@pytest.mark.parametrize("form", [on_one, on_two])
def test_a_default_device_need_not_see_it(form: Callable[..., Any], asked: list[Any]) -> None:
    x = torch.zeros(8, 4)
    with torch.device("cpu"):
        assert form(x) != "framework"
    assert asked


def row_major(x: Any) -> Any:
    """A tensor of a situation; they make column-major views for large copies."""
    try:
        return x if x.is_sparse else x.t()
    except RuntimeError:  # there are no new views of what was freed
        return x._base


@pytest.mark.parametrize("form", [on_one, on_two])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_must_be_seen_goes_to_torch(
    situation: str, form: Callable[..., Any], asked: list[Any]
) -> None:
    made = []
    SITUATIONS[situation](lambda x: made.append(form(row_major(x))))
    assert made == ["framework"]
    assert asked == []


@pytest.mark.parametrize("form", [on_one, on_two])
def test_so_does_a_part_of_what_was_freed(form: Callable[..., Any], asked: list[Any]) -> None:
    x = torch.zeros(9, 4)[1:]
    x.untyped_storage().resize_(0)
    assert form(x) == "framework"
    assert not write(x, torch.zeros(8, 4))
    assert not write(torch.zeros(8, 4), x)
    assert asked == []


def write(x: Any, y: Any) -> bool:
    return writer(MOVES, [(4, 8)], [(8, 4)])([x], [y]) is not None


def test_plain_tensors_are_read_and_written(asked: list[Any]) -> None:
    y = torch.zeros(8, 4)
    before = y._version
    assert write(torch.zeros(8, 4), y)
    assert y._version > before
    with torch.inference_mode():
        assert write(torch.zeros(8, 4), torch.zeros(8, 4))
    with torch.no_grad():
        assert write(torch.zeros(8, 4, requires_grad=True), torch.zeros(8, 4))
    assert len(asked) == 3


def test_a_write_into_several_is_a_version_of_each(asked: list[Any]) -> None:
    ys = [torch.zeros(8, 4), torch.zeros(8, 4)]
    two = writer((*MOVES, (0, 1, MOVES[0][2])), [(4, 8)], [(8, 4), (8, 4)])
    assert two([torch.zeros(8, 4)], ys) is not None
    assert [y._version for y in ys] == [1, 1]
    assert len(asked) == 1


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_must_be_seen_is_not_written_nor_read(situation: str, asked: list[Any]) -> None:
    made = []

    def check(x: Any) -> None:
        x = row_major(x)
        moves = ((0, 0, (0, 0, ((512, 64, 1), (64, 1, 512)))),)
        shape = tuple(x.shape)
        try:
            other = torch.empty_like(x)
        except (RuntimeError, NotImplementedError):  # some kinds cannot be made anew
            other = torch.empty(shape)
        made.append(writer(moves, [shape], [shape])([x], [other]))
        made.append(writer(moves, [shape], [shape])([other], [x]))

    SITUATIONS[situation](check)
    assert made == [None, None]
    assert asked == []


@pytest.mark.parametrize(
    "y",
    [
        torch.zeros(4, 8),
        torch.zeros(8, 4, dtype=torch.int32),
        torch.zeros(8, 4, requires_grad=True),
        torch.zeros(4, 8).t(),
        [0.0],
    ],
    ids=["shape", "dtype", "gradient", "strides", "no array"],
)
def test_what_does_not_fit_is_not_written(y: Any, asked: list[Any]) -> None:
    with torch.no_grad():
        assert not write(torch.zeros(8, 4), y)
    assert asked == []


def test_what_overlaps_is_not_written(asked: list[Any]) -> None:
    memory = torch.zeros(100)
    x, y = memory[:32].view(8, 4), memory[31:63].view(8, 4)
    assert not write(x, y)
    assert not write(y, x)
    assert write(x, memory[32:64].view(8, 4))
    two = writer((*MOVES, (0, 1, MOVES[0][2])), [(4, 8)], [(8, 4), (8, 4)])
    assert two([torch.zeros(8, 4)], [x, y]) is None
    assert two([torch.zeros(8, 4)], [x]) is None
    assert len(asked) == 1


@pytest.mark.usefixtures("asked")
def test_strided_memory_goes_to_torch() -> None:
    assert on_one(torch.zeros(4, 8).t()) == "framework"
    assert on_one(torch.zeros(8, 8)[:, ::2]) == "framework"


def test_a_lazy_negative_goes_to_torch(asked: list[Any]) -> None:
    x = torch._neg_view(torch.ones(8, 4))
    assert x.is_contiguous()  # unlike that of SITUATIONS
    assert on_one(x) == on_two(x) == "framework"
    assert not write(x, torch.zeros(8, 4))
    assert not write(torch.zeros(8, 4), x)
    assert asked == []


def test_a_small_op_is_one_run(asked: list[Any]) -> None:
    x = torch.zeros(7, 5)
    turned = xl.matrix_transpose.layout((7, 5))
    for call in (xl.matrix_transpose, lambda x: xl.trim(x, to=3), xl.unstack):
        call(x)
    assert len(asked) == 3
    xl.pad(x, to=8)
    turned(x, fill=1)  # which has no holes
    assert len(asked) == 5
    xl.pad(x, to=8, value=1)
    assert len(asked) == 5


def test_an_input_that_nothing_is_taken_from_is_an_input() -> None:
    second = xl.Layout([(2,), (3,)], [(3,)], [xl.Piece(2, 0, ((3, 1, 1),))])
    assert second(torch.zeros(2), torch.arange(3.0)).tolist() == [0, 1, 2]


def test_a_scalar_is_a_result_like_any() -> None:
    last = quick(framework, ((1, 0, (0, 0, ((1, 1, 1),))),), 2, [()])
    y = last(torch.tensor(1.0), torch.tensor(2.0))
    assert (y.shape, y.item()) == ((), 2.0)


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_the_result_has_the_dtype_of_what_it_is_made_of(dtype: torch.dtype) -> None:
    x = torch.arange(12 * dtype.itemsize, dtype=torch.uint8).view(dtype).view(3, 4)
    y = quick(framework, TURN, 1, [(4, 3)])(x)
    assert (y.dtype, y.shape, y.stride()) == (dtype, (4, 3), (3, 1))
    two = quick(framework, (*TURN, (1, 0, (0, 12, ((12, 1, 1),)))), 2, [(24,)])(x, x)
    raw = x.view(torch.uint8).view(3, 4, -1)
    assert torch.equal(y.view(torch.uint8).view(4, 3, -1), raw.transpose(0, 1))
    assert torch.equal(two.view(torch.uint8)[: x.nbytes], y.view(torch.uint8).flatten())


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_what_is_not_written_is_zero(dtype: torch.dtype) -> None:
    x = torch.arange(1, 1 + 12 * dtype.itemsize, dtype=torch.uint8).view(dtype).view(3, 4)
    torch.ones(15 * dtype.itemsize, dtype=torch.uint8)  # the memory of results, perhaps
    y = quick(framework, TURN, 1, [(5, 3)])(x)
    two = quick(framework, (*TURN, (1, 0, (0, 13, ((2, 1, 1),)))), 2, [(5, 3)])(x, x)
    first, second = (z.view(torch.uint8).view(15, -1) for z in (y, two))
    raw = x.view(torch.uint8).view(3, 4, -1)
    assert torch.equal(first[:12].view(4, 3, -1), raw.transpose(0, 1))
    assert first[12:].tolist() == 3 * [dtype.itemsize * [0]]
    assert torch.equal(second[:12], first[:12])
    assert torch.equal(second[13:], raw[0, :2])
    assert second[12].tolist() == dtype.itemsize * [0]


@pytest.mark.parametrize("shapes", [[(4, 3), (1,)], [()]])
def test_several_results_with_holes_and_an_empty_scalar_go_to_torch(shapes: Any) -> None:
    assert quick(framework, TURN[: len(shapes) - 1], 1, shapes)(torch.zeros(3, 4)) == "framework"


def test_the_result_is_a_tensor_of_its_own() -> None:
    x = Parameter(torch.arange(6.0).reshape(2, 3), requires_grad=False)
    y = xl.matrix_transpose(x)
    assert type(y) is torch.Tensor
    assert y.tolist() == [[0, 3], [1, 4], [2, 5]]
    y.zero_()
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_plans_are_prepared_for_dtypes_that_come(prepared_widths: list[int]) -> None:
    run = quick(framework, TURN, 1, [(4, 3)])
    assert prepared_widths == []
    for dtype in (torch.float32, torch.float32, torch.bfloat16, torch.complex64):
        run(torch.zeros(3, 4, dtype=dtype))
    assert prepared_widths == [4, 2]


def test_up_to_a_quarter_of_a_megabyte_one_call_does_it(prepared_widths: list[int]) -> None:
    column = ONE_CALL // 4
    turn = ((0, 0, (0, 0, ((1, column, column), (column, 1, 1)))),)
    run = quick(framework, turn, 1, [(1, column)])
    assert run(torch.ones(column, 1, dtype=torch.float64)) == "framework"  # twice as much
    assert run(torch.ones(column, 1)).shape == (1, column)
    more = quick(framework, turn, 1, [(1, ONE_CALL + 1)])
    assert more(torch.ones(column, 1, dtype=torch.uint8)) == "framework"
    assert prepared_widths == [4]


def test_so_do_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(60000.0).view(200, 300)
    xl.matrix_transpose(x)
    module = sys.modules[writer.__module__]  # its name in the package is the function's
    monkeypatch.setattr(module, "addresses_of", lambda _arrays: pytest.fail("looked at twice"))
    assert torch.equal(xl.matrix_transpose(x), x.T)
