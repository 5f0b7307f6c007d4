"""On a GPU a join of long rows is torch's own `cat`, except where the kernel is faster."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import xlayout as xl
import xlayout_torch
from xlayout.lower.recipe import recipe
from xlayout_torch import cuda

HEADS: dict[str, Any] = {"heads": 4, "kv_heads": 2}
ROWS, SHORT = [(64, 320)] * 3, [(1024, 20)] * 3
JOINS = {
    "fuse": (xl.fuse_qkv.layout((64, 320), (32, 320), (32, 320), **HEADS), 1),
    "stack": (xl.stack.layout(ROWS), 0),
    "merge": (xl.from_tiles.layout([ROWS]), 1),
    "merge short rows": (xl.from_tiles.layout([SHORT]), None),
    "merge both ways": (xl.from_tiles.layout([ROWS, ROWS]), None),
    "turned": (xl.Layout.parse("a b, c b -> b (a + c)", ROWS[:2]), None),
}


@pytest.mark.parametrize("join", JOINS)
def test_a_layout_that_is_one_join_asks_for_it(join: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, axis = JOINS[join]
    xs = [torch.randn(shape) for shape in layout.in_shapes]
    asked: list[int] = []
    monkeypatch.setattr(xlayout_torch, "quick", lambda plain, *_args: plain)
    monkeypatch.setattr(xlayout_torch, "writer", lambda *_args: lambda *_arrays: None)
    monkeypatch.setattr(
        xlayout_torch, "concatenates_well", lambda _xs, axis: not asked.append(axis)
    )
    made = recipe(layout, xlayout_torch, 0)(*xs)
    assert asked == ([] if axis is None else [axis])
    assert torch.equal(made, layout(*xs))


def test_whole_tensors_are_torchs_and_rows_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    xs = [torch.zeros(8, 256), torch.zeros(8, 256)]
    monkeypatch.setattr(cuda, "JOIN", 2 * xs[0].nbytes)
    assert [cuda.concatenates_well(xs, axis) for axis in (0, 1)] == [True, False]
    monkeypatch.setattr(cuda, "JOIN", 2 * xs[0].nbytes + 1)
    assert cuda.concatenates_well(xs, 1)
    assert not cuda.concatenates_well([xs[0], torch.zeros(256, 8).t()], 1)


def test_tensors_on_a_cpu_are_not_joined_so() -> None:
    assert not xlayout_torch.concatenates_well([torch.zeros(8, 256)] * 2, 0)
