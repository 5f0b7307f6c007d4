"""An exchange moves memory, whatever JAX is told about the programs that it compiles meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

from tests.bridge.memory import at_offset, bits, pointer
from xlayout.bridge import to_jax, to_numpy, to_torch

CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "automatic mesh": lambda: jax.set_mesh(jax.make_mesh((8,), ("d",), (AxisType.Auto,))),
    "explicit mesh": lambda: jax.set_mesh(jax.make_mesh((8,), ("d",), (AxisType.Explicit,))),
    "debug_nans": lambda: jax.debug_nans(True),
    "disable_jit": lambda: jax.disable_jit(True),
}
VALUES = [1.0, float("nan"), -0.0, float("inf")]
everywhere = pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)


def committed(dtype: Any) -> jax.Array:
    return jax.device_put(jnp.asarray(VALUES, dtype), jax.devices()[3])


def lent() -> jax.Array:
    """On memory that torch may not write into, and so copies."""
    n = at_offset(np.array(VALUES, ml_dtypes.bfloat16), 0)
    n.flags.writeable = False
    return to_jax(n, copy=False)


@everywhere
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float8_e5m2])
def test_copies_are_fresh_and_exact(
    context: Callable[[], AbstractContextManager[Any]], dtype: Any
) -> None:
    arrays = [committed(dtype), jnp.asarray(VALUES, dtype)]
    with context():
        for a in arrays:
            for convert in (to_torch, to_jax, to_numpy):
                made = convert(a, copy=True)
                assert pointer(made) != pointer(a)
                assert bits(made) == bits(a)


@everywhere
def test_a_copy_stays_on_its_devices(context: Callable[[], AbstractContextManager[Any]]) -> None:
    mesh = jax.make_mesh((2, 4), ("a", "b"), (AxisType.Auto, AxisType.Auto))
    spread = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("b")))
    free, weak, key = jnp.ones(3), jnp.asarray(1.0) + 1, jax.random.key(7)
    packed = jax.device_put(jnp.arange(4, dtype=jnp.int4), SingleDeviceSharding(jax.devices()[2]))
    for a in (spread, free, weak, key, packed):
        with context():
            made = to_jax(a, copy=True)
        assert (made.aval, made.sharding, made.committed) == (a.aval, a.sharding, a.committed)
        assert bool((made == a).all())


@everywhere
def test_memory_that_cannot_be_shared_crosses_as_ever(
    context: Callable[[], AbstractContextManager[Any]],
) -> None:
    a = lent()
    with context():
        made = to_torch(a)
        narrow = [
            to_jax(torch.tensor(VALUES, dtype=dtype), x64="narrow")
            for dtype in (torch.float64, torch.complex128)
        ]
        whole = to_jax(torch.tensor([7, -7]), x64="narrow")
        strided = to_jax(torch.tensor(VALUES)[::2])
    assert (pointer(made) != pointer(a), bits(made)) == (True, bits(a))
    for x, dtype in zip(narrow, (torch.float32, torch.complex64), strict=True):
        assert str(x.tolist()) == str(torch.tensor(VALUES, dtype=dtype).tolist())
    assert (whole.dtype.name, whole.tolist()) == ("int32", [7, -7])
    assert {x.device for x in (*narrow, whole, strided)} == {jax.devices()[0]}
    with context(), pytest.raises(OverflowError, match="a value does not fit int32"):
        to_jax(torch.tensor([2**40]), x64="narrow")
