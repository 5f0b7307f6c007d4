"""Contenders: every op as xlayout, by hand and in einops, on 1 KB of float32, with its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import einops
import jax
import jax.numpy as jnp
import numpy as np
import torch
from numpy import ascontiguousarray as row_major

import xlayout as xl
from xlayout.bench.answers import answer
from xlayout.bench.cases import Cut, Hand, Join, Permute, Stack
from xlayout.bench.contest import parts_of

__all__ = ["CONTENDERS", "INTO", "OPS", "WRITTEN", "cached_jit", "flattened", "given"]

X = np.arange(256, dtype=np.float32).reshape(16, 16)
CUBE = X.reshape(4, 4, 16)
QKV = (X[:8].copy(), X[8:12].copy(), X[12:].copy())
ROWS = [x.copy() for x in CUBE]
TILES = [[X[r : r + 8, c : c + 8].copy() for c in (0, 8)] for r in (0, 8)]
HEADS: dict[str, Any] = {"heads": 4, "kv_heads": 2}
SEGMENTS: dict[str, Any] = {"sizes": (8, 4, 4), "groups": 2}
PERMUTE = xl.interleave.layout((16, 16))
SUM = xl.regroup.layout((16, 16), **SEGMENTS)


def by_definition(layout: xl.Layout, *inputs: np.ndarray) -> Any:
    """The answer, every piece read and written as it is defined; holes are 0."""
    flat = answer(layout, np.concatenate([x.ravel() for x in inputs]))
    made = parts_of(flat, layout.out_shapes)
    return made if len(made) > 1 else made[0]


OPS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "interleave": ((X,), by_definition(xl.interleave.layout((16, 16)), X)),
    "deinterleave": ((X,), by_definition(xl.deinterleave.layout((16, 16)), X)),
    "matrix_transpose": ((X,), X.T),
    "permute_dims": ((CUBE,), CUBE.transpose(2, 0, 1)),
    "rope_halves": ((X,), by_definition(xl.rope_halves.layout((16, 16), heads=2), X)),
    "rope_pairs": ((X,), by_definition(xl.rope_pairs.layout((16, 16), heads=2), X)),
    "fuse_qkv": (QKV, by_definition(xl.fuse_qkv.layout(*(x.shape for x in QKV), **HEADS), *QKV)),
    "split_qkv": ((X,), by_definition(xl.split_qkv.layout((16, 16), **HEADS), X)),
    "regroup": ((X,), by_definition(SUM, X)),
    "ungroup": ((X,), by_definition(xl.ungroup.layout((16, 16), **SEGMENTS), X)),
    "to_tiles": ((X,), TILES),
    "from_tiles": ((TILES,), X),
    "stack": ((ROWS,), CUBE),
    "unstack": ((CUBE,), ROWS),
    "pad": ((X,), by_definition(xl.pad.layout((16, 16), to=20), X)),
    "trim": ((X,), X[:12]),
    "rearrange": ((X,), by_definition(PERMUTE, X)),
    "layout(x)": ((X,), by_definition(PERMUTE, X)),
    "layout(x), 3 pieces": ((X,), by_definition(SUM, X)),
}
"""Inputs and the right answer."""

# Every contender is a function with the call inside, options and all, as one writes it.

XLAYOUT: dict[str, Callable[..., Any]] = {
    "interleave": lambda x: xl.interleave(x),
    "deinterleave": lambda x: xl.deinterleave(x),
    "matrix_transpose": lambda x: xl.matrix_transpose(x),
    "permute_dims": lambda x: xl.permute_dims(x, axes=(2, 0, 1)),
    "rope_halves": lambda x: xl.rope_halves(x, heads=2),
    "rope_pairs": lambda x: xl.rope_pairs(x, heads=2),
    "fuse_qkv": lambda q, k, v: xl.fuse_qkv(q, k, v, heads=4, kv_heads=2),
    "split_qkv": lambda x: xl.split_qkv(x, heads=4, kv_heads=2),
    "regroup": lambda x: xl.regroup(x, sizes=(8, 4, 4), groups=2),
    "ungroup": lambda x: xl.ungroup(x, sizes=(8, 4, 4), groups=2),
    "to_tiles": lambda x: xl.to_tiles(x, grid=(2, 2)),
    "from_tiles": lambda tiles: xl.from_tiles(tiles),
    "stack": lambda xs: xl.stack(xs),
    "unstack": lambda x: xl.unstack(x),
    "pad": lambda x: xl.pad(x, to=20),
    "trim": lambda x: xl.trim(x, to=12),
    "rearrange": lambda x: xl.rearrange(x, "(g n) c -> (n g) c", g=2),
    "layout(x)": lambda x: PERMUTE(x),
    "layout(x), 3 pieces": lambda x: SUM(x),
}

WRITTEN: dict[str, Callable[..., Any]] = {
    "interleave": lambda x, out: xl.interleave(x, out=out),
    "deinterleave": lambda x, out: xl.deinterleave(x, out=out),
    "matrix_transpose": lambda x, out: xl.matrix_transpose(x, out=out),
    "permute_dims": lambda x, out: xl.permute_dims(x, axes=(2, 0, 1), out=out),
    "rope_halves": lambda x, out: xl.rope_halves(x, heads=2, out=out),
    "rope_pairs": lambda x, out: xl.rope_pairs(x, heads=2, out=out),
    "fuse_qkv": lambda q, k, v, out: xl.fuse_qkv(q, k, v, heads=4, kv_heads=2, out=out),
    "split_qkv": lambda x, out: xl.split_qkv(x, heads=4, kv_heads=2, out=out),
    "stack": lambda xs, out: xl.stack(xs, out=out),
    "layout(x)": lambda x, out: PERMUTE(x, out=out),
}
"""Ops that are also written into arrays that are there; `INTO` is how one does that by hand."""


_ARRAYS: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": np.array,
    "torch": torch.tensor,
    "jax": jnp.asarray,
}


def given(framework: str, inputs: Any) -> Any:
    """The inputs of an op, arrays and lists of arrays, as a framework's own and fresh."""
    if isinstance(inputs, (list, tuple)):
        return type(inputs)(given(framework, x) for x in inputs)
    return _ARRAYS[framework](inputs)


def flattened(result: Any) -> Iterator[np.ndarray]:
    """The arrays of a result, row-major and in order."""
    if isinstance(result, (list, tuple)):
        for part in result:
            yield from flattened(part)
    else:
        yield row_major(result)


def cached_jit(form: Callable[..., Any], arity: int) -> Callable[..., Any]:
    """A form as `jax.jit` keeps it, called as every contender is."""
    jitted = jax.jit(form)
    return (lambda x: jitted(x)) if arity == 1 else (lambda q, k, v: jitted(q, k, v))


def numpy_pad(x: Any) -> Any:
    y = np.zeros((20, 16), x.dtype)
    y[:16] = x
    return y


def numpy_split_qkv(x: Any) -> Any:
    y = x.reshape(2, 8, 16)
    return y[:, :4].reshape(8, 16), y[:, 4:6].reshape(4, 16), y[:, 6:].reshape(4, 16)


def numpy_regroup(x: Any) -> Any:
    parts = x[:8].reshape(2, 4, 16), x[8:12].reshape(2, 2, 16), x[12:].reshape(2, 2, 16)
    return np.concatenate(parts, 1).reshape(16, 16)


NUMPY: dict[str, Callable[..., Any]] = {
    "interleave": lambda x: x.reshape(2, 8, 16).transpose(1, 0, 2).reshape(16, 16),
    "deinterleave": lambda x: x.reshape(8, 2, 16).transpose(1, 0, 2).reshape(16, 16),
    "matrix_transpose": lambda x: row_major(x.T),
    "permute_dims": lambda x: row_major(x.transpose(2, 0, 1)),
    "rope_halves": lambda x: x.reshape(2, 4, 2, 16).swapaxes(1, 2).reshape(16, 16),
    "rope_pairs": lambda x: x.reshape(2, 2, 4, 16).swapaxes(1, 2).reshape(16, 16),
    "fuse_qkv": lambda q, k, v: np.concatenate(
        (q.reshape(2, 4, 16), k.reshape(2, 2, 16), v.reshape(2, 2, 16)), 1
    ).reshape(16, 16),
    "split_qkv": numpy_split_qkv,
    "regroup": numpy_regroup,
    "ungroup": lambda x: np.concatenate(numpy_split_qkv(x)),
    "to_tiles": lambda x: [[x[r : r + 8, :8].copy(), x[r : r + 8, 8:].copy()] for r in (0, 8)],
    "from_tiles": lambda tiles: np.concatenate([np.concatenate(row, 1) for row in tiles]),
    "stack": np.stack,
    "unstack": lambda x: [row.copy() for row in x],
    "pad": numpy_pad,
    "trim": lambda x: x[:12].copy(),
    "rearrange": lambda x: x.reshape(2, 8, 16).transpose(1, 0, 2).reshape(16, 16),
    "layout(x)": lambda x: x.reshape(2, 8, 16).transpose(1, 0, 2).reshape(16, 16),
    "layout(x), 3 pieces": numpy_regroup,
}


def torch_split_qkv(x: Any) -> Any:
    y = x.view(2, 8, 16)
    return y[:, :4].reshape(8, 16), y[:, 4:6].reshape(4, 16), y[:, 6:].reshape(4, 16)


def torch_regroup(x: Any) -> Any:
    parts = x[:8].view(2, 4, 16), x[8:12].view(2, 2, 16), x[12:].view(2, 2, 16)
    return torch.cat(parts, 1).view(16, 16)


TORCH: dict[str, Callable[..., Any]] = {
    "interleave": lambda x: x.view(2, 8, 16).transpose(0, 1).reshape(16, 16),
    "deinterleave": lambda x: x.view(8, 2, 16).transpose(0, 1).reshape(16, 16),
    "matrix_transpose": lambda x: x.t().contiguous(),
    "permute_dims": lambda x: x.permute(2, 0, 1).contiguous(),
    "rope_halves": lambda x: x.view(2, 4, 2, 16).transpose(1, 2).reshape(16, 16),
    "rope_pairs": lambda x: x.view(2, 2, 4, 16).transpose(1, 2).reshape(16, 16),
    "fuse_qkv": lambda q, k, v: torch.cat(
        (q.view(2, 4, 16), k.view(2, 2, 16), v.view(2, 2, 16)), 1
    ).view(16, 16),
    "split_qkv": torch_split_qkv,
    "regroup": torch_regroup,
    "ungroup": lambda x: torch.cat(torch_split_qkv(x)),
    "to_tiles": lambda x: [
        [tile.contiguous() for tile in row.chunk(2, 1)] for row in x.chunk(2, 0)
    ],
    "from_tiles": lambda tiles: torch.cat([torch.cat(row, 1) for row in tiles]),
    "stack": torch.stack,
    "unstack": lambda x: [row.clone() for row in x.unbind()],
    "pad": lambda x: torch.nn.functional.pad(x, (0, 0, 0, 4)),
    "trim": lambda x: x[:12].clone(),
    "rearrange": lambda x: x.view(2, 8, 16).transpose(0, 1).reshape(16, 16),
    "layout(x)": lambda x: x.view(2, 8, 16).transpose(0, 1).reshape(16, 16),
    "layout(x), 3 pieces": torch_regroup,
}


def jax_regroup(x: Any) -> Any:
    parts = x[:8].reshape(2, 4, 16), x[8:12].reshape(2, 2, 16), x[12:].reshape(2, 2, 16)
    return jnp.concatenate(parts, 1).reshape(16, 16)


JAX: dict[str, Callable[..., Any]] = {
    **NUMPY,
    "matrix_transpose": lambda x: x.T,
    "permute_dims": lambda x: x.transpose(2, 0, 1),
    "fuse_qkv": lambda q, k, v: jnp.concatenate(
        (q.reshape(2, 4, 16), k.reshape(2, 2, 16), v.reshape(2, 2, 16)), 1
    ).reshape(16, 16),
    "regroup": jax_regroup,
    "ungroup": lambda x: jnp.concatenate(numpy_split_qkv(x)),
    "from_tiles": lambda tiles: jnp.concatenate([jnp.concatenate(row, 1) for row in tiles]),
    "stack": jnp.stack,
    "pad": lambda x: jnp.pad(x, ((0, 4), (0, 0))),
    "layout(x), 3 pieces": jax_regroup,
}

INTO: dict[str, Hand] = {
    "interleave": Permute((2, 8, 16), (1, 0, 2)),
    "deinterleave": Permute((8, 2, 16), (1, 0, 2)),
    "matrix_transpose": Permute((16, 16), (1, 0)),
    "permute_dims": Permute((4, 4, 16), (2, 0, 1)),
    "rope_halves": Permute((2, 4, 2, 16), (0, 2, 1, 3)),
    "rope_pairs": Permute((2, 2, 4, 16), (0, 2, 1, 3)),
    "fuse_qkv": Join(((2, 4, 16), (2, 2, 16), (2, 2, 16)), 1),
    "split_qkv": Cut((2, 8, 16), 1, (4, 2, 2)),
    "stack": Stack(),
    "layout(x)": Permute((2, 8, 16), (1, 0, 2)),
}
"""How one writes into arrays that are there by hand."""

_EINOPS: dict[str, tuple[str, dict[str, int]]] = {
    "interleave": ("(g n) c -> (n g) c", {"g": 2}),
    "deinterleave": ("(n g) c -> (g n) c", {"g": 2}),
    "matrix_transpose": ("a b -> b a", {}),
    "permute_dims": ("a b c -> c a b", {}),
    "rope_halves": ("(h n two) c -> (h two n) c", {"h": 2, "two": 2}),
    "rope_pairs": ("(h two n) c -> (h n two) c", {"h": 2, "two": 2}),
    "stack": ("n a b -> n a b", {}),
    "rearrange": ("(g n) c -> (n g) c", {"g": 2}),
    "layout(x)": ("(g n) c -> (n g) c", {"g": 2}),
}
_COPIES: dict[str, Callable[..., Any]] = {"numpy": row_major, "torch": torch.Tensor.contiguous}
_VIEWS = ("matrix_transpose", "permute_dims")


def _by_einops(op: str, framework: str) -> Callable[..., Any]:
    pattern, sizes = _EINOPS[op]
    if op in _VIEWS and framework in _COPIES:
        copied = _COPIES[framework]
        return lambda x: copied(einops.rearrange(x, pattern, **sizes))
    return lambda x: einops.rearrange(x, pattern, **sizes)


CONTENDERS: dict[str, dict[str, dict[str, Callable[..., Any]]]] = {
    framework: {
        op: {"xlayout": XLAYOUT[op], "hand": hand[op]}
        | ({"einops": _by_einops(op, framework)} if op in _EINOPS else {})
        for op in OPS
    }
    for framework, hand in (("numpy", NUMPY), ("torch", TORCH), ("jax", JAX))
}
"""framework -> op -> contender -> call."""
