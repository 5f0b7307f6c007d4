"""A Triton kernel that puts words together, one of each kind."""

from __future__ import annotations

import triton
import triton.language as tl

from xlayout_triton.permute import funnel, joined, permuted, transposed

__all__ = ["DIGITS", "put_together"]

DIGITS = 0x7204
_DIGITS = tl.constexpr(DIGITS)


@triton.jit
def put_together(words, wide, made, joint, turned):  # type: ignore[no-untyped-def]
    """Of four words of 4 bytes and two of 8, with every start that there may be."""
    w0, w1, w2, w3 = tl.load(words), tl.load(words + 1), tl.load(words + 2), tl.load(words + 3)
    start = tl.arange(0, 4)
    tl.store(made + start, funnel(tl.broadcast_to(w0, (4,)), tl.broadcast_to(w1, (4,)), start))
    tl.store(made + 4, permuted(w0, w1, _DIGITS))
    low, high = tl.load(wide), tl.load(wide + 1)
    start = tl.arange(0, 8)
    tl.store(joint + start, joined(tl.broadcast_to(low, (8,)), tl.broadcast_to(high, (8,)), start))
    bytes_of = transposed((w0, w1, w2, w3))
    halves_of = transposed((w0, w1))
    for k in tl.static_range(4):
        tl.store(turned + k, bytes_of[k])
    for k in tl.static_range(2):
        tl.store(turned + 4 + k, halves_of[k])
