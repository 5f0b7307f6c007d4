"""One case of bench/memory.py: an op on a large input, and the highest resident memory it took.

Linux only: the high-water mark is reset through /proc before the call. It means something only if
the call cannot be served from pages that an earlier one left behind. So whatever was let go is
given back to the system first, and a rise that is smaller than the result itself is an error.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import xlayout as xl
from xlayout.rss import forget_peak, resident

COLUMNS = 4096
HEADS = {"heads": 24, "kv_heads": 4}
PATIENCE = 20.0  # seconds for memory to be released: JAX does so late, in another thread

OURS: dict[str, Callable[..., Any]] = {
    "matrix_transpose": xl.matrix_transpose,
    "interleave": xl.interleave,
    "rope_halves": lambda x, **options: xl.rope_halves(x, heads=32, **options),
    "fuse_qkv": lambda q, k, v: xl.fuse_qkv(q, k, v, **HEADS),
    "stack": lambda *xs: xl.stack(xs),
}


def by_hand(op: str, module: Any, *xs: Any) -> Any:
    """The usual form by hand, the same in all three frameworks."""
    if op == "fuse_qkv":
        groups = [x.reshape(HEADS["kv_heads"], -1, COLUMNS) for x in xs]
        return module.concatenate(groups, 1).reshape(-1, COLUMNS)
    if op == "stack":
        return module.stack(xs)
    (x,) = xs
    if op == "matrix_transpose":
        if module is np:
            return x.T.copy()  # ascontiguousarray may give a view, as torch's contiguous() may
        if module.__name__ == "torch":
            return x.T.clone(memory_format=module.contiguous_format)
        return x.T
    if op == "interleave":
        return x.reshape(2, -1, COLUMNS).swapaxes(0, 1).reshape(x.shape)
    return x.reshape(32, -1, 2, COLUMNS).swapaxes(1, 2).reshape(x.shape)


def inputs(op: str, form: str, rows: int) -> list[np.ndarray]:
    """Arrays with `rows` rows in all, no two elements equal."""
    parts = {"fuse_qkv": [rows // 8 * 6, rows // 8, rows // 8], "stack": [rows // 8] * 8}
    arrays, first = [], 0
    for count in parts.get(op, [rows]):
        numbers = np.arange(first, first + count * COLUMNS, dtype=np.int32)
        arrays.append(arranged(numbers.reshape(count, COLUMNS), form))
        first += numbers.size
    return arrays


def arranged(x: np.ndarray, form: str) -> np.ndarray:
    """The same array, contiguous, or in memory that is transposed or has gaps."""
    if form == "transposed":
        return np.ascontiguousarray(x.T).T
    if form == "strided":
        wide = np.zeros((x.shape[0], 2 * x.shape[1]), x.dtype)
        wide[:, ::2] = x
        return wide[:, ::2]
    return x


def framework_of(name: str, form: str) -> tuple[Any, Callable[[np.ndarray], Any]]:
    """The module with `stack` and `concatenate`, and how to import an array with its strides."""
    if name == "torch":
        import torch

        return torch, torch.from_numpy
    if name == "jax":
        import jax
        import jax.numpy as jnp
        from jax.experimental.layout import Format, Layout

        device = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
        order = (1, 0) if form == "transposed" else (0, 1)
        return jnp, lambda x: jax.device_put(jnp.array(x), Format(Layout(order), device))
    return np, lambda x: x


def settled() -> int:
    """VmRSS, after freed memory has been given back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return resident("VmRSS")


def settled_at(most: int) -> int:
    """VmRSS, once it has come down to `most`."""
    end = time.monotonic() + PATIENCE
    while (now := settled()) > most:
        if time.monotonic() > end:
            raise RuntimeError(f"{now - most} bytes of the first call are still held")
        time.sleep(0.05)
    return now


def finished(result: Any) -> Any:
    """The result, after waiting for it."""
    return result.block_until_ready() if hasattr(result, "block_until_ready") else result


def temporary(call: Callable[..., Any], xs: list[Any]) -> int:
    """Bytes that XLA says it needs besides inputs and outputs."""
    import jax

    analysis = jax.jit(call).lower(*xs).compile().memory_analysis()
    return int(analysis.temp_size_in_bytes)


def peak(call: Callable[..., Any], xs: list[Any], rested: int) -> tuple[Any, int]:
    """The result, and the bytes that making it took at its peak.

    Args:
        call: the op, called once before and its result released.
        xs: its inputs, which stay.
        rested: VmRSS before that first call.
    """
    size = sum(x.nbytes for x in xs)
    before = settled_at(rested + size // 2)
    forget_peak()
    made = finished(call(*xs))
    rise = resident("VmHWM") - before
    if rise < 0.99 * size:
        raise RuntimeError(f"a rise of {rise} bytes for a result of {size}: pages were used again")
    return made, rise


def donated(op: str, megabytes: int) -> None:
    """Print the bytes that an op took which could work in the memory of its input."""
    import torch

    rows = megabytes * (1 << 20) // (4 * COLUMNS) // COLUMNS * COLUMNS
    OURS[op](torch.zeros(COLUMNS, COLUMNS), donate=True)  # so that threads and scratch memory exist
    squares = (-1, COLUMNS, COLUMNS) if op == "matrix_transpose" else (rows, COLUMNS)
    x = torch.arange(rows * COLUMNS, dtype=torch.int32).view(squares)
    wanted = OURS[op](x)
    before = settled()
    forget_peak()
    made = OURS[op](x, donate=True)
    rise = resident("VmHWM") - before
    assert torch.equal(made, wanted), f"{op}, donated: wrong"
    print(json.dumps({"bytes": rise}))


def main(op: str, framework: str, form: str, who: str, megabytes: int) -> None:
    """Print what the case took beyond its input, in multiples of the input."""
    if who == "donated":
        donated(op, megabytes)
        return
    module, given = framework_of(framework, form)
    call = OURS[op] if who == "xlayout" else lambda *xs: by_hand(op, module, *xs)
    if who == "jit":
        import jax

        call = jax.jit(call)
    rows = megabytes * (1 << 20) // (4 * COLUMNS) // 64 * 64
    finished(call(*[given(x) for x in inputs(op, form, 64)]))  # a compiler takes memory of its own
    xs = [finished(given(x)) for x in inputs(op, form, rows)]
    rested = settled()
    finished(call(*xs))  # compiles and plans for this size; the result is released
    made, rise = peak(call, xs, rested)
    size = sum(x.nbytes for x in xs)
    found = {"extra": rise / size}
    if framework == "jax" and who == "xlayout":
        found["temp"] = temporary(call, xs) / size
    wanted = by_hand(op, np, *inputs(op, "contiguous", rows))
    assert np.array_equal(np.asarray(made), wanted), f"{op}, {framework}, {form}, {who}: wrong"
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:5], int(sys.argv[5]))
