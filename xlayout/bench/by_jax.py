"""JAX: an op by its own ops, eager and under `jax.jit`, beside xlayout and einops."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from xlayout.bench.answers import Bits
from xlayout.bench.cases import Case
from xlayout.bench.contest import Contest, memcpys, parts_of
from xlayout.bench.timing import Call
from xlayout.bench.words import Words, by_einops, fresh

__all__ = ["KINDS", "WORDS", "jax_contest"]

WORDS = Words(
    permute=jnp.transpose,
    own=lambda x: x,
    concatenate=jnp.concatenate,
    stack=jnp.stack,
    pad=lambda x, axis, more: jnp.pad(x, [(0, more * (k == axis)) for k in range(x.ndim)]),
)

KINDS = {"uint8": np.uint8, "float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
"""The dtypes that JAX reads bits as."""


def jax_contest(case: Case, content: Bits, dtype: str, *, threads: int) -> Contest:
    """The calls of a case on JAX arrays on the CPU, where no result goes into an array."""
    cpu = jax.devices("cpu")[0]
    given = parts_of(content.view(KINDS[dtype]), case.layout.in_shapes)
    xs = [jax.device_put(jnp.array(x), cpu) for x in given]
    hand = fresh(case.hand, case.layout.out_shapes, WORDS)
    calls: dict[str, Call] = {
        "xlayout fresh": _on(case.ours, xs),
        "eager fresh": _on(hand, xs),
        "compiled fresh": _on(jax.jit(hand), xs),
        "xlayout compiled": _on(jax.jit(lambda *xs: case.ours(*xs)), xs),
    }
    calls |= by_einops(case, xs, WORDS)
    source = _small_pages(content.nbytes)
    target = _small_pages(case.layout.out_size * content.itemsize)
    source[:] = target[:] = 1
    units = memcpys(source, target, threads)
    return Contest(calls, units, jax.block_until_ready)


def _on(form: Callable[..., Any], xs: Sequence[Any]) -> Call:
    return lambda: form(*xs)


def _small_pages(count: int) -> NDArray[np.uint8]:
    """Memory on small pages, as XLA has it: numpy's own would lie on huge pages."""
    return np.frombuffer(mmap.mmap(-1, count), np.uint8)
