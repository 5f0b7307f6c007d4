"""Permute: words of the bytes of two others, each by an instruction that NVIDIA's GPUs have for it.

Shifts and masks are three to ten instructions in place of one, and how many there are is what
limits copies in words. Triton's interpreter and other GPUs take those, for the same words.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.target_info import is_hip

__all__ = ["funnel", "joined", "permuted", "transposed"]

_JOIN = tl.constexpr("""{
    .reg .pred far;
    .reg .b32 a, b, c, d;
    mov.b64 {a, b}, $1;
    mov.b64 {c, d}, $2;
    setp.ge.u32 far, $3, 4;
    selp.b32 a, b, a, far;
    selp.b32 b, c, b, far;
    selp.b32 c, d, c, far;
    prmt.b32.f4e a, a, b, $3;
    prmt.b32.f4e b, b, c, $3;
    mov.b64 $0, {a, b};
}""")


@triton.jit
def funnel(low, high, start):
    """The word of 4 bytes that begins with byte `start` of two of them, one of the first four."""
    bits = start.to(tl.uint32) * 8
    return (low >> bits) | ((high << 1) << (bits ^ 31))  # a pattern that is known to the compiler


_INTERPRETED = tl.constexpr(not isinstance(funnel, triton.JITFunction))


@triton.jit
def joined(low, high, start):
    """The word of 8 bytes that begins with byte `start` of two of them, one of the first eight."""
    if _INTERPRETED or is_hip():
        bits = start.to(tl.uint64) * 8
        return (low >> bits) | ((high << 8) << (56 - bits))
    else:  # noqa: RET505 -- or it would be compiled after the return above, too
        given = [low, high, tl.broadcast_to(start, low.shape)]
        return tl.inline_asm_elementwise(_JOIN, "=l,l,l,r", given, tl.uint64, True, 1)


@triton.constexpr_function
def _instruction(digits):
    return f"prmt.b32 $0, $1, $2, {digits};"


@triton.jit
def permuted(low, high, DIGITS: tl.constexpr):
    """The word of four bytes of two words, as digits of a number whose last is the first byte.

    They count the bytes of both, from 0 to 7: 0x5410 is the first half of each.
    """
    if _INTERPRETED or is_hip():
        made = low & 0
        for k in tl.static_range(4):
            byte = (low if DIGITS >> 4 * k & 4 == 0 else high) >> 8 * (DIGITS >> 4 * k & 3)
            made |= (byte & 255) << 8 * k
        return made
    else:  # noqa: RET505 -- as above
        CODE: tl.constexpr = _instruction(DIGITS)
        return tl.inline_asm_elementwise(CODE, "=r,r,r", [low, high], tl.uint32, True, 1)


@triton.jit
def transposed(words, PART: tl.constexpr = 4):
    """As many words as each has elements, transposed: halves change places, then their halves."""
    COUNT: tl.constexpr = len(words)
    if COUNT > 1:
        FIRST: tl.constexpr = 0x5410 if PART == 4 else 0x6240
        SECOND: tl.constexpr = 0x7632 if PART == 4 else 0x7351
        first = ()
        second = ()
        for k in tl.static_range(COUNT // 2):
            low, high = words[k], words[k + COUNT // 2]
            first += (permuted(low, high, FIRST),)
            second += (permuted(low, high, SECOND),)
        return transposed(first, PART // 2) + transposed(second, PART // 2)
    else:  # noqa: RET505 -- as above
        return words
