"""Under torch.compile ops and options may differ from call to call, and may follow from sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import xlayout as xl

pytestmark = pytest.mark.usefixtures("no_graph_of_another_test")


def test_a_list_of_options_is_a_constant() -> None:
    call = torch.compile(
        lambda x: xl.regroup(xl.permute_dims(x, [1, 0]), sizes=[2, 1], groups=1),
        fullgraph=True,
        backend="eager",
    )
    assert call(torch.arange(6).reshape(2, 3)).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_options_may_differ_from_call_to_call() -> None:
    call = torch.compile(
        lambda x, heads: xl.rope_halves(x, heads=heads, axis=-1), fullgraph=True, backend="eager"
    )
    for width, heads in ((256, 32), (64, 8), (24, 3), (24, 2)):
        x = torch.randn(2, width)
        assert torch.equal(call(x, heads), xl.rope_halves(x, heads=heads, axis=-1))


def test_options_may_follow_from_sizes() -> None:
    call = torch.compile(
        lambda x: xl.pad(x, to=(x.shape[0] + 7) // 8 * 8), fullgraph=True, backend="eager"
    )
    for n in (5, 6, 7, 9):
        assert call(torch.ones(n)).tolist() == [1.0] * n + [0.0] * (-n % 8)


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_number_may_become_open_that_an_option_holds_twice(kind: Callable[[Any], Any]) -> None:
    call = torch.compile(
        lambda x, n: xl.regroup(x, sizes=kind((n, n)), groups=2), fullgraph=True, backend="eager"
    )
    for n in (8, 40, 20):
        x = torch.arange(4.0 * n * n).reshape(2 * n, 2 * n)
        assert torch.equal(call(x, n), xl.regroup(x, sizes=(n, n), groups=2))


@pytest.mark.parametrize(
    "is_first",
    [
        lambda op: op is xl.interleave,
        lambda op: op == xl.interleave,
        lambda op: op in (xl.interleave, xl.stack),
        lambda op: op in {xl.interleave: 1, xl.stack: 2},
        lambda op: getattr(op, "layout", None) is xl.interleave.layout,
    ],
    ids=["is", "equal", "in a tuple", "in a dict", "its layout"],
)
def test_an_op_is_told_from_others(is_first: Callable[[Any], bool]) -> None:
    call = torch.compile(
        lambda op, x: x + 1 if is_first(op) else op(x), fullgraph=True, backend="eager"
    )
    x = torch.arange(8)
    for op in (xl.interleave, xl.deinterleave, xl.interleave, xl.deinterleave):
        assert torch.equal(call(op, x), x + 1 if op is xl.interleave else op(x))


def test_each_op_that_is_compiled_has_its_own_number_of_recompiles() -> None:
    ops = [getattr(xl, name) for name in xl.__all__]
    codes = [op.__code__ for op in ops if hasattr(op, "layout") and hasattr(op, "__code__")]
    assert len(codes) == len(set(codes)) > 10


def test_many_layouts_are_one_graph() -> None:
    turned, padded = xl.Layout.permute((2, 3), (1, 0)), xl.pad.layout((2,), to=3)
    joined = xl.stack.layout(((2,), (2,)))

    def use(x: torch.Tensor, y: torch.Tensor) -> Any:
        return xl.apply_many([turned, padded, joined], [x, y, (y, y)], fill=7)

    made = torch.compile(use, fullgraph=True, backend="eager")(
        torch.arange(6).reshape(2, 3), torch.tensor([1, 2])
    )
    assert [y.tolist() for y in made] == [[[0, 3], [1, 4], [2, 5]], [1, 2, 7], [[1, 2], [1, 2]]]
