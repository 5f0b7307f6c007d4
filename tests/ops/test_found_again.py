"""What ran for a call runs for the next one like it: nothing is worked out, or compiled, again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xlayout as xl
from tests.frameworks import Framework, Jax, Numpy, Torch
from tests.ops.examples import flat
from xlayout.ops import engine

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
    "tiles": (lambda x: xl.to_tiles(x, grid=(2, 2)), lambda x: xl.to_tiles(x, grid=[2, 2])),
}


@pytest.mark.parametrize("framework", [Numpy(), Torch(), Jax()], ids=lambda f: f.name)
@pytest.mark.parametrize("name", CALLS)
def test_a_list_finds_what_a_tuple_did(
    framework: Framework, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_tuple, by_list = CALLS[name]
    values = np.arange(256, dtype=np.float32).reshape(16, 16)
    x = framework.array(values)
    wanted = [framework.numpy(y) for y in flat(by_tuple(x))]
    monkeypatch.delattr(engine, "caller")  # what makes a run of a layout
    for _ in range(2):
        for y, z in zip(flat(by_list(x)), wanted, strict=True):
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
        rows = [framework.numpy(y) for y in flat(xl.to_tiles(x, grid=(4, 1), comm=comm))]
        assert np.array_equal(np.concatenate(rows), values)
        monkeypatch.setattr(engine, "caller", None)
