"""One case of bench/memory.py: an op on a large input, and the highest resident memory it took.

Linux only: the high-water mark is reset through /proc before the call.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import xlayout as xl

COLUMNS = 4096
HEADS = {"heads": 24, "kv_heads": 4}

OURS: dict[str, Callable[..., Any]] = {
    "matrix_transpose": xl.matrix_transpose,
    "interleave": xl.interleave,
    "rope_halves": lambda x: xl.rope_halves(x, heads=32),
    "fuse_qkv": lambda q, k, v: xl.fuse_qkv(q, k, v, **HEADS),
    "stack": lambda *xs: xl.stack(xs),
}


def by_hand(op: str, module: Any, *xs: Any) -> Any:
    """The form one would write, the same in all three frameworks."""
    if op == "fuse_qkv":
        groups = [x.reshape(HEADS["kv_heads"], -1, COLUMNS) for x in xs]
        return module.concatenate(groups, 1).reshape(-1, COLUMNS)
    if op == "stack":
        return module.stack(xs)
    (x,) = xs
    if op == "matrix_transpose":
        if module is np:
            return np.ascontiguousarray(x.T)
        return x.T.contiguous() if hasattr(x, "contiguous") else x.T
    if op == "interleave":
        return x.reshape(2, -1, COLUMNS).swapaxes(0, 1).reshape(x.shape)
    return x.reshape(32, -1, 2, COLUMNS).swapaxes(1, 2).reshape(x.shape)


def inputs(op: str, form: str, megabytes: int) -> list[np.ndarray]:
    """Arrays that hold `megabytes` together, every element another number."""
    rows = megabytes * (1 << 20) // (4 * COLUMNS) // 64 * 64
    parts = {"fuse_qkv": [rows // 8 * 6, rows // 8, rows // 8], "stack": [rows // 8] * 8}
    arrays, first = [], 0
    for count in parts.get(op, [rows]):
        numbers = np.arange(first, first + count * COLUMNS, dtype=np.int32)
        arrays.append(arranged(numbers.reshape(count, COLUMNS), form))
        first += numbers.size
    return arrays


def arranged(x: np.ndarray, form: str) -> np.ndarray:
    """The same array, in memory that is transposed or has gaps."""
    if form == "transposed":
        return np.ascontiguousarray(x.T).T
    if form == "strided":
        wide = np.zeros((x.shape[0], 2 * x.shape[1]), x.dtype)
        wide[:, ::2] = x
        return wide[:, ::2]
    return x


def framework_of(name: str) -> tuple[Any, Callable[[np.ndarray], Any]]:
    """The module with `stack` and `concatenate`, and how an array gets in with its strides."""
    if name == "torch":
        import torch

        return torch, torch.from_numpy
    if name == "jax":
        import jax.numpy as jnp

        return jnp, jnp.array
    return np, lambda x: x


def resident(field: str) -> int:
    """Bytes: VmRSS is what is held now, VmHWM the most since the last reset."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def settled() -> int:
    """VmRSS once it no longer falls: JAX gives memory back late, and from another thread."""
    gc.collect()
    least, calm = resident("VmRSS"), 0
    while calm < 5:
        time.sleep(0.1)
        now = resident("VmRSS")
        calm = calm + 1 if now >= least else 0
        least = min(least, now)
    return least


def finished(result: Any) -> Any:
    """The result, once it is there."""
    return result.block_until_ready() if hasattr(result, "block_until_ready") else result


def temporary(call: Callable[..., Any], xs: list[Any]) -> int:
    """Bytes that XLA needs beside inputs and outputs, by its own account."""
    import jax

    analysis = jax.jit(call).lower(*xs).compile().memory_analysis()
    return int(analysis.temp_size_in_bytes)


def main(op: str, framework: str, form: str, who: str, megabytes: int) -> None:
    """Print what the case took beyond its input, in multiples of the input."""
    module, given = framework_of(framework)
    call = OURS[op] if who == "xlayout" else lambda *xs: by_hand(op, module, *xs)
    if who == "jit":
        import jax

        call = jax.jit(call)
    xs = [finished(given(x)) for x in inputs(op, form, megabytes)]
    size = sum(x.nbytes for x in xs)
    finished(call(*xs))  # compiled, planned and let go
    before = settled()
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    made = finished(call(*xs))
    found = {"extra": (resident("VmHWM") - before) / size}
    if framework == "jax" and who == "xlayout":
        found["temp"] = temporary(call, xs) / size
    wanted = by_hand(op, np, *inputs(op, "contiguous", megabytes))
    assert np.array_equal(np.asarray(made), wanted), f"{op}, {framework}, {form}, {who}: wrong"
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:5], int(sys.argv[5]))
