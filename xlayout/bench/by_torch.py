"""Torch: an op by its own ops, eager and compiled, beside xlayout and einops."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xlayout.bench.answers import Bits
from xlayout.bench.cases import Case
from xlayout.bench.contest import Contest, memcpys, parts_of
from xlayout.bench.timing import Call
from xlayout.bench.words import Words, eager_calls, fresh, into

__all__ = ["WORDS", "can_compile", "torch_contest"]

WORDS = Words(
    permute=torch.Tensor.permute,
    own=torch.Tensor.contiguous,
    concatenate=torch.cat,
    stack=lambda xs, axis, **out: torch.stack(tuple(xs), axis, **out),
    pad=lambda x, axis, more: torch.nn.functional.pad(x, (0, 0) * (x.ndim - 1 - axis) + (0, more)),
    write=lambda target, view: target.copy_(view),
)


def torch_contest(
    case: Case, content: Bits, dtype: str, *, threads: int, compiled: bool
) -> Contest:
    """The calls of a case on torch tensors."""
    source = torch.empty(content.size, dtype=getattr(torch, dtype))
    _bytes(source)[:] = content.view(np.uint8)
    target = torch.zeros(case.layout.out_size, dtype=source.dtype)
    xs = parts_of(source, case.layout.in_shapes)
    ys = parts_of(target, case.layout.out_shapes)
    calls = eager_calls(case, xs, ys, WORDS)
    if compiled and can_compile():
        calls |= _compiled(case, xs, ys)
    units = memcpys(_bytes(source), _bytes(target), threads)
    return Contest(calls, units, clear=target.zero_, as_bytes=_bytes)


def can_compile() -> bool:
    """Whether `torch.compile` has the C++ compiler that it needs."""
    return any(map(shutil.which, (os.environ.get("CXX", ""), "g++", "clang++")))


def _compiled(case: Case, xs: Sequence[Any], ys: Sequence[Any]) -> dict[str, Call]:
    made, written = fresh(case.hand, case.layout.out_shapes, WORDS), into(case.hand, WORDS)
    torch._dynamo.reset()  # otherwise it gives up after eight shapes
    compiled: Any = torch.compile  # its declared type does not fit calls on Any
    hand, reused, op = (
        compiled(f, dynamic=False, fullgraph=True) for f in (made, written, case.ours)
    )
    return {
        "compiled reused": lambda: reused(xs, ys),
        "compiled fresh": lambda: hand(*xs),
        "xlayout compiled": lambda: op(*xs),
    }


def _bytes(x: Any) -> NDArray[np.uint8]:
    seen: NDArray[np.uint8] = x.reshape(-1).view(torch.uint8).numpy()
    return seen
