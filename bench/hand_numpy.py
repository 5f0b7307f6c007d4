"""Hand, numpy: the ops of `bench.contenders` on 1 KB, as one would write them in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ascontiguousarray as row_major

__all__ = ["FORMS", "array", "row_major", "split_qkv"]

array = np.array


def pad(x: Any) -> Any:
    y = np.zeros((20, 16), x.dtype)
    y[:16] = x
    return y


def split_qkv(x: Any) -> Any:
    y = x.reshape(2, 8, 16)
    return y[:, :4].reshape(8, 16), y[:, 4:6].reshape(4, 16), y[:, 6:].reshape(4, 16)


def regroup(x: Any) -> Any:
    parts = x[:8].reshape(2, 4, 16), x[8:12].reshape(2, 2, 16), x[12:].reshape(2, 2, 16)
    return np.concatenate(parts, 1).reshape(16, 16)


FORMS: dict[str, Callable[..., Any]] = {
    "interleave": lambda x: x.reshape(2, 8, 16).transpose(1, 0, 2).reshape(16, 16),
    "deinterleave": lambda x: x.reshape(8, 2, 16).transpose(1, 0, 2).reshape(16, 16),
    "matrix_transpose": lambda x: row_major(x.T),
    "permute_dims": lambda x: row_major(x.transpose(2, 0, 1)),
    "rope_halves": lambda x: x.reshape(2, 4, 2, 16).swapaxes(1, 2).reshape(16, 16),
    "rope_pairs": lambda x: x.reshape(2, 2, 4, 16).swapaxes(1, 2).reshape(16, 16),
    "fuse_qkv": lambda q, k, v: np.concatenate(
        (q.reshape(2, 4, 16), k.reshape(2, 2, 16), v.reshape(2, 2, 16)), 1
    ).reshape(16, 16),
    "split_qkv": split_qkv,
    "regroup": regroup,
    "ungroup": lambda x: np.concatenate(split_qkv(x)),
    "to_tiles": lambda x: [[x[r : r + 8, :8].copy(), x[r : r + 8, 8:].copy()] for r in (0, 8)],
    "from_tiles": lambda tiles: np.concatenate([np.concatenate(row, 1) for row in tiles]),
    "stack": np.stack,
    "unstack": lambda x: [row.copy() for row in x],
    "pad": pad,
    "trim": lambda x: x[:12].copy(),
    "rearrange": lambda x: x.reshape(2, 8, 16).transpose(1, 0, 2).reshape(16, 16),
    "layout(x)": lambda x: x.reshape(2, 8, 16).transpose(1, 0, 2).reshape(16, 16),
    "layout(x), 3 pieces": regroup,
}
