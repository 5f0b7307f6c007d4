"""Every op once, with the placements of its arrays and of its results on a mesh of dp and tp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import xlayout as xl
from xlayout.shard.sharding import Entry

__all__ = ["OPS", "REPEATS", "Spec", "some"]

Spec = tuple[Entry, ...]

TP: Spec = ("tp",)
W = (32, 16)
GLU = xl.interleave.layout(W)
QKV = ((32, 16), (16, 16), (16, 16))

# name: (op, shapes of the inputs, spec of each, spec wanted for each result)
OPS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], Spec, Spec]] = {
    "interleave": (lambda x, **o: xl.interleave(x, block=2, **o), (W,), TP, TP),
    "deinterleave": (xl.deinterleave, (W,), (("dp", "tp"),), ("dp", "tp")),
    "matrix_transpose": (xl.matrix_transpose, (W,), TP, TP),
    "permute_dims": (
        lambda x, **o: xl.permute_dims(x, (2, 0, 1), **o), ((8, 8, 16),), ("tp", "dp"), ("dp",)),
    "rope_halves": (lambda x, **o: xl.rope_halves(x, heads=4, **o), (W,), TP, TP),
    "rope_pairs": (lambda x, **o: xl.rope_pairs(x, heads=2, **o), (W,), (("tp", "dp"),), TP),
    "fuse_qkv by groups": (
        lambda *x, **o: xl.fuse_qkv(*x, heads=8, kv_heads=4, **o), QKV, TP, TP),
    "fuse_qkv one after the other": (
        lambda *x, **o: xl.fuse_qkv(*x, heads=8, kv_heads=4, order="concat", **o), QKV, TP, TP),
    "split_qkv": (
        lambda x, **o: xl.split_qkv(x, heads=8, kv_heads=4, order="concat", **o),
        ((64, 16),), TP, TP),
    "regroup": (lambda x, **o: xl.regroup(x, sizes=(16, 8, 8), groups=4, **o), (W,), TP, TP),
    "ungroup": (lambda x, **o: xl.ungroup(x, sizes=(16, 8, 8), groups=4, **o), (W,), TP, TP),
    "stack": (lambda *x, **o: xl.stack(x, **o), (W, W), TP, (None, "tp")),
    "unstack": (xl.unstack, ((4, 8, 16),), (None, "tp"), TP),
    "pad": (lambda x, **o: xl.pad(x, to=40, value=2.5, **o), ((24, 16),), TP, ("tp", "dp")),
    "trim": (lambda x, **o: xl.trim(x, to=24, **o), (W,), TP, TP),
    "rearrange": (lambda x, **o: xl.rearrange(x, "(a b) c -> b (a c)", a=4, **o), (W,), TP, TP),
    "rearrange, into axes": (
        lambda x, **o: xl.rearrange(x, "(a b) c -> a b c", a=4, **o), (W,), TP, TP),
    "rearrange, along a new axis": (
        lambda x, **o: xl.rearrange(x, "(a b) c -> a b c", a=4, **o), (W,), TP,
        (None, None, "tp")),
    "rearrange, out of axes": (
        lambda x, **o: xl.rearrange(x, "a b -> (a b)", **o), (W,), (None, "tp"), ()),
    "apply": (lambda x, **o: xl.apply(GLU, x, **o), (W,), TP, TP),
    "to_tiles": (lambda x, **o: xl.to_tiles(x, grid=(2, 2), **o), (W,), TP, TP),
    "from_tiles": (
        lambda a, b, **o: xl.from_tiles([[a, b]], **o), ((16, 8), (16, 8)), TP, TP),
}  # fmt: skip

_ROWS = (64, 1, 1)
# One piece that goes to several places, several pieces that begin in the same place, results of
# which many ranks hold nothing, and several arrays. All inputs are (8, 8).
REPEATS = {
    "rows": xl.Layout(((8, 8),), ((40, 8),), [xl.Piece(0, 0, ((5, 0, 64), _ROWS))]),
    "broadcast": xl.Layout(((8, 8),), ((3, 8, 8),), [xl.Piece(0, 0, ((3, 0, 64), _ROWS))]),
    "overlaps": xl.Layout(
        ((8, 8),), ((16, 8),), [xl.Piece(8, 0, ((56, 1, 1),)), xl.Piece(0, 64, (_ROWS,))]
    ),
    "heads": xl.Layout(
        ((8, 8),), ((16, 8),), [xl.Piece(0, 0, ((4, 16, 32), (2, 0, 16), (16, 1, 1)))]
    ),
    "the last row twice": xl.Layout(
        ((8, 8),), ((2, 8),), [xl.Piece(56, 0, ((2, 0, 8), (8, 1, 1)))]
    ),
    "two rows twice, and holes": xl.Layout(
        ((8, 8),), ((16, 8),), [xl.Piece(0, 0, ((2, 0, 16), (16, 1, 1)))]
    ),
    "several arrays": xl.Layout(
        ((8, 8), (8, 8)), ((8, 8), (16, 8)),
        [xl.Piece(0, 0, (_ROWS,)), xl.Piece(0, 64, (_ROWS,)), xl.Piece(64, 128, (_ROWS,))],
    ),
    "an array of holes": xl.Layout(
        ((8, 8), (8, 8)), ((8, 8), (16, 8)),
        [xl.Piece(0, 64, (_ROWS,)),
         xl.Piece(0, 128, ((4, 1, 1),)), xl.Piece(64, 132, ((60, 1, 1),))],
    ),
}  # fmt: skip


def some(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Ordinary random numbers."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)
