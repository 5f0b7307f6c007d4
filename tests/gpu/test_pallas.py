"""The Pallas contender transposes correctly in the interpreter, and compiles for a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("jax")

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bench.gpu.pallas import transpose, turn_rows
from xlayout_jax import targets

CALLS: dict[str, tuple[tuple[int, ...], Callable[..., Any], Callable[[Any], Any]]] = {
    "transpose": ((256, 384), transpose, lambda x: x.T),
    "transpose tall": ((1024, 16), transpose, lambda x: x.T),
    "transpose batch": ((3, 256, 128), transpose, lambda x: x.swapaxes(1, 2)),
    "zip": (
        (8, 4096),
        lambda x, **o: turn_rows(x, (2, 2048), **o),
        lambda x: x.reshape(8, 2, 2048).swapaxes(1, 2).reshape(8, 4096),
    ),
    "unzip": (
        (32, 512),
        lambda x, **o: turn_rows(x, (256, 2), **o),
        lambda x: x.reshape(32, 256, 2).swapaxes(1, 2).reshape(32, 512),
    ),
}
COMPILER = "jax_cuda12_plugin"


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
@pytest.mark.parametrize("name", CALLS)
def test_the_interpreter_agrees(name: str, dtype: str) -> None:
    shape, ours, wanted = CALLS[name]
    x = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    assert np.array_equal(ours(x, interpret=True), wanted(x))


@pytest.mark.skipif(importlib.util.find_spec(COMPILER) is None, reason=f"{COMPILER} is missing")
@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32"])
@pytest.mark.parametrize("name", CALLS)
def test_it_compiles_for_an_h100(name: str, dtype: str) -> None:
    shape, ours, _ = CALLS[name]
    place = NamedSharding(Mesh(targets._devices("h100", 1), ("devices",)), PartitionSpec())
    lowered = jax.jit(ours).lower(jax.ShapeDtypeStruct(shape, dtype, sharding=place))
    assert "xla.gpu.triton" in lowered.compile({"xla_gpu_autotune_level": "0"}).as_text()
