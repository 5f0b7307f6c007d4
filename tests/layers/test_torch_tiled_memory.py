"""A tiled layer works a tile at a time: nothing dense is made, and ZeRO gathers one by one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from tests.layers.whole import dense
from tests.sizes import Sizes
from xlayout.torch import TiledLinear


def test_a_step_makes_nothing_as_large_as_the_weight() -> None:
    tiled = TiledLinear(80, 60, in_splits=2, out_splits=3)
    with Sizes() as sizes:
        tiled(torch.ones(2, 80)).sum().backward()
    assert max(sizes.made) == 20 * 40


def test_another_grid_is_loaded_without_the_dense_weight() -> None:
    state = TiledLinear(80, 60, in_splits=4, out_splits=3).state_dict()
    tiled = TiledLinear(80, 60, in_splits=2, out_splits=3)
    with Sizes() as sizes:
        tiled.load_state_dict(state)
    assert max(sizes.made, default=0) <= 20 * 40


Gathered = list[tuple[torch.Size, int | None]]


@pytest.fixture
def zero(monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[[nn.Module], None], Gathered]:
    """A stand-in for ZeRO-3: parameters are taken away, and given back only while gathered.

    As in DeepSpeed, writes are kept only with a `modifier_rank`.
    """
    seen: Gathered = []

    def take_away(module: nn.Module) -> None:
        for parameter in module.parameters():
            held: Any = parameter
            held.ds_id, held.ds_whole = id(parameter), parameter.data
            parameter.data = torch.empty(0, dtype=parameter.dtype)

    @contextmanager
    def gather(parameter: Any, modifier_rank: int | None = None) -> Iterator[None]:
        parameter.data = parameter.ds_whole.clone()
        seen.append((parameter.shape, modifier_rank))
        yield
        if modifier_rank is not None:
            parameter.ds_whole = parameter.data
        parameter.data = torch.empty(0, dtype=parameter.dtype)

    module: Any = ModuleType("deepspeed.zero")
    module.GatheredParameters = gather
    monkeypatch.setitem(sys.modules, "deepspeed", ModuleType("deepspeed"))
    monkeypatch.setitem(sys.modules, "deepspeed.zero", module)
    return take_away, seen


def test_what_zero_cut_up_is_gathered_tile_by_tile(
    zero: tuple[Callable[[nn.Module], None], Gathered],
) -> None:
    take_away, seen = zero
    of = dense(10, 7)
    tiled = TiledLinear(10, 7, in_splits=4, out_splits=2, dtype=torch.float64)
    take_away(tiled)
    tiled.copy_params_from(of)
    assert all(not parameter.numel() for parameter in tiled.parameters())
    assert {rank for _, rank in seen} == {0}
    assert [shape.numel() for shape, _ in seen] == [12, 12, 8, 8, 9, 9, 6, 6, 4, 3]
    seen.clear()
    back = tiled.to_linear()
    assert {rank for _, rank in seen} == {None}
    assert torch.equal(back.weight, of.weight)
    assert torch.equal(back.bias, of.bias)


def test_tiles_that_are_cut_up_when_they_are_made_are_drawn_as_one(
    zero: tuple[Callable[[nn.Module], None], Gathered],
) -> None:
    take_away, _ = zero

    def init(self: nn.Linear, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        take_away(self)

    original = nn.Linear.__init__
    with pytest.MonkeyPatch.context() as patched:  # as DeepSpeed does under `zero.Init`
        patched.setattr(nn.Linear, "__init__", init)
        tiled = TiledLinear(400, 30, bias=False, in_splits=8)
    assert tiled.to_linear().weight.abs().max() <= 400**-0.5
