"""Numpy: an op by its own ops, beside xlayout and einops; bfloat16 as its bits, uint16."""

from __future__ import annotations

import numpy as np

from xlayout.bench.answers import Bits
from xlayout.bench.cases import Case
from xlayout.bench.contest import Contest, memcpys, parts_of
from xlayout.bench.words import Words, eager_calls

__all__ = ["WORDS", "numpy_contest"]

WORDS = Words(
    permute=np.transpose,
    own=np.ascontiguousarray,
    concatenate=np.concatenate,
    stack=np.stack,
    pad=lambda x, axis, more: np.pad(x, [(0, more * (k == axis)) for k in range(x.ndim)]),
    write=np.copyto,
)


def numpy_contest(case: Case, content: Bits, *, threads: int) -> Contest:
    """The calls of a case on numpy arrays."""
    target = np.zeros(case.layout.out_size, content.dtype)
    xs = parts_of(content, case.layout.in_shapes)
    ys = parts_of(target, case.layout.out_shapes)
    calls = eager_calls(case, xs, ys, WORDS)
    units = memcpys(content.view(np.uint8), target.view(np.uint8), threads)
    return Contest(calls, units, clear=lambda: target.fill(0))
