"""Hand, torch: the ops of `bench.contenders` on 1 KB, as one would write them in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["FORMS", "array", "row_major"]

array = torch.tensor
row_major = torch.Tensor.contiguous


def split_qkv(x: Any) -> Any:
    y = x.view(2, 8, 16)
    return y[:, :4].reshape(8, 16), y[:, 4:6].reshape(4, 16), y[:, 6:].reshape(4, 16)


def regroup(x: Any) -> Any:
    parts = x[:8].view(2, 4, 16), x[8:12].view(2, 2, 16), x[12:].view(2, 2, 16)
    return torch.cat(parts, 1).view(16, 16)


FORMS: dict[str, Callable[..., Any]] = {
    "interleave": lambda x: x.view(2, 8, 16).transpose(0, 1).reshape(16, 16),
    "deinterleave": lambda x: x.view(8, 2, 16).transpose(0, 1).reshape(16, 16),
    "matrix_transpose": lambda x: x.t().contiguous(),
    "permute_dims": lambda x: x.permute(2, 0, 1).contiguous(),
    "rope_halves": lambda x: x.view(2, 4, 2, 16).transpose(1, 2).reshape(16, 16),
    "rope_pairs": lambda x: x.view(2, 2, 4, 16).transpose(1, 2).reshape(16, 16),
    "fuse_qkv": lambda q, k, v: torch.cat(
        (q.view(2, 4, 16), k.view(2, 2, 16), v.view(2, 2, 16)), 1
    ).view(16, 16),
    "split_qkv": split_qkv,
    "regroup": regroup,
    "ungroup": lambda x: torch.cat(split_qkv(x)),
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
    "layout(x), 3 pieces": regroup,
}
