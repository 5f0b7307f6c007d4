"""Under torch.compile a refusal is the same error as outside, and may be caught inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import xlayout as xl
from xlayout import Layout
from xlayout.errors import AxisError, LayoutError, PatternError, SizeError

TURN = Layout.permute((3, 4), (1, 0))
TWO = Layout.concat([(12,), (12,)])
LONGER = Layout.pad((12,), to=13)

# (what is called on a tensor of shape (12,), error)
REFUSALS: list[tuple[str, Any, type[Exception]]] = [
    ("a block", lambda x: xl.interleave(x, block=5), SizeError),
    ("a text", lambda x: xl.interleave(x, block="a"), TypeError),
    ("an option", lambda x: xl.interleave(x, blok=2), TypeError),
    ("a size", lambda x: xl.pad(x, to=3), SizeError),
    ("axes", lambda x: xl.permute_dims(x, (1, 1)), AxisError),
    ("a grid", lambda x: xl.to_tiles(x, grid=(2, 2)), AxisError),
    ("a pattern", lambda x: xl.rearrange(x, "(a b -> b a", a=2), PatternError),
    ("a pattern's size", lambda x: xl.rearrange(x, "(a b) -> b a", a=5), PatternError),
    ("a shape", lambda x: xl.apply(TURN, x), LayoutError),
    ("a layout's shape", lambda x: TURN(x), LayoutError),
    ("two dtypes", lambda x: xl.stack([x, x.double()]), TypeError),
    ("a layout's dtypes", lambda x: TWO(x, x.double()), TypeError),
    ("a fill", lambda x: xl.pad(x, to=13, value=0.5), LayoutError),
    ("a layout's fill", lambda x: LONGER(x, fill=0.5), LayoutError),
]

pytestmark = pytest.mark.usefixtures("no_graph_of_another_test")


@pytest.mark.parametrize(("call", "error"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_it_comes_out_as_it_is(call: Callable[[Any], Any], error: type[Exception]) -> None:
    x = torch.arange(12)
    with pytest.raises(error) as outside:
        call(x)
    with pytest.raises(error) as compiled:
        torch.compile(call, backend="eager")(x)
    assert compiled.type is outside.type
    assert str(compiled.value) == str(outside.value)


@pytest.mark.parametrize(("call", "error"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_it_is_caught(call: Callable[[Any], Any], error: type[Exception]) -> None:
    def caught(x: Any) -> Any:
        try:
            return call(x)
        except error:
            return x + 1

    x = torch.arange(12)
    made = torch.compile(caught, backend="eager", fullgraph=True)(x)
    assert torch.equal(made, x + 1)


def test_a_size_that_is_refused_says_nothing_of_others() -> None:
    def cut(x: Any) -> Any:
        try:
            return xl.trim(x, to=5)
        except SizeError:
            return x

    call = torch.compile(cut, backend="eager", fullgraph=True)
    assert [len(call(torch.zeros(n))) for n in (3, 9, 4, 5, 8)] == [3, 5, 4, 5, 5]


def test_no_memory_is_promised_inside() -> None:
    layout = xl.trim.layout((12,), to=5)
    with pytest.raises(BufferError, match=r"^copy: False cannot be promised while tracing; use"):
        torch.compile(lambda x: layout(x, copy=False), backend="eager")(torch.arange(12))
    view = torch.compile(lambda x: layout(x, copy=None), backend="eager")(x := torch.arange(12))
    assert view.data_ptr() == x.data_ptr()
