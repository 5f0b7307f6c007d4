"""Contenders: every op in xlayout, by hand and in einops, on 1 KB of float32, with its answer.

A framework is imported only when its contenders are asked for, and einops may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
from numpy import ascontiguousarray as row_major

import xlayout as xl
from xlayout.bench.answers import answer
from xlayout.bench.contest import arrays_of, parts_of
from xlayout.bench.hands import Cut, Hand, Join, Permute, Stack

__all__ = ["INTO", "OPS", "WRITTEN", "contenders", "flattened", "given"]

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
    """The answer, each piece copied as its definition says; holes are 0."""
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

# Each contender is a function that makes the call, with its options, as a user would write it.

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


def given(framework: str, inputs: Any) -> Any:
    """The inputs of an op, arrays and lists of arrays, as fresh arrays of a framework."""
    if isinstance(inputs, (list, tuple)):
        return type(inputs)(given(framework, x) for x in inputs)
    return _hand(framework).array(inputs)


def flattened(result: Any) -> Iterator[np.ndarray]:
    """The arrays of a result, row-major and in order."""
    return map(row_major, arrays_of(result))


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
_VIEWS = ("matrix_transpose", "permute_dims")


def contenders(framework: str, op: str) -> dict[str, Callable[..., Any]]:
    """Every contender of an op on this framework's arrays, as a function of its inputs.

    >>> list(contenders("numpy", "trim"))
    ['xlayout', 'hand']
    """
    found = {"xlayout": XLAYOUT[op], "hand": _hand(framework).FORMS[op]}
    if op in _EINOPS and find_spec("einops"):
        found["einops"] = _by_einops(op, framework)
    return found


def _by_einops(op: str, framework: str) -> Callable[..., Any]:
    import einops

    pattern, sizes = _EINOPS[op]
    if op in _VIEWS and framework != "jax":
        copied = _hand(framework).row_major
        return lambda x: copied(einops.rearrange(x, pattern, **sizes))
    return lambda x: einops.rearrange(x, pattern, **sizes)


def _hand(framework: str) -> ModuleType:
    """The module with the forms written by hand, and with `array`, which makes the inputs."""
    if framework == "torch":
        from bench import hand_torch

        return hand_torch
    if framework == "jax":
        from bench import hand_jax

        return hand_jax
    from bench import hand_numpy

    return hand_numpy
