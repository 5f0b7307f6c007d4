"""Answers: what a layout makes of elements, by its definition, and whether a call made that."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from xlayout.algebra import Layout
from xlayout.algebra.piece import Piece

__all__ = ["UNSIGNED", "Bits", "answer", "differs", "elements"]

Bits: TypeAlias = NDArray[np.unsignedinteger]

UNSIGNED: dict[str, type[np.unsignedinteger]] = {
    "uint8": np.uint8,
    "bfloat16": np.uint16,
    "float32": np.uint32,
}
"""The integers that hold a dtype's bits."""

_FINITE = {
    "bfloat16": (0xBFFF, 0x2000),
    "float32": (0xBFFFFFFF, 0x20000000),
}
"""(bits to keep, bits to set) in the exponent, so that random bits are normal numbers."""

_SLAB = 64  # steps along the axis that is adjacent in the input, copied at a time
_STEP = 1 << 16  # bytes that are compared at a time


def elements(count: int, dtype: str) -> Bits:
    """Pseudorandom elements as their bits; floats are normal numbers, which conversions keep.

    >>> elements(3, "uint8").dtype
    dtype('uint8')
    """
    kind = np.dtype(UNSIGNED[dtype])
    words = np.random.default_rng(0).integers(0, 2**64, -(-count * kind.itemsize // 8), np.uint64)
    made = words.view(kind)[:count]
    if dtype in _FINITE:
        kept, added = map(kind.type, _FINITE[dtype])
        made &= kept
        made |= added
    return made


def answer(layout: Layout, content: Bits) -> Bits:
    """The outputs of a layout, one after another: each piece copied as its definition says.

    The same as `content[layout.index()]`, without a table eight times as large as the elements.

    >>> answer(Layout.permute((2, 3), (1, 0)), np.arange(6, dtype=np.uint8)).tolist()
    [0, 3, 1, 4, 2, 5]
    """
    made = np.zeros(sum(math.prod(shape) for shape in layout.out_shapes), content.dtype)
    for piece in layout.pieces:
        _copy(piece, content, made)
    return made


def _copy(piece: Piece, content: Bits, made: Bits) -> None:
    shape = [n for n, _, _ in piece.loops]
    size = content.itemsize
    source = as_strided(
        content[piece.in_offset :], shape, [x * size for _, x, _ in piece.loops], writeable=False
    )
    target = as_strided(made[piece.out_offset :], shape, [z * size for _, _, z in piece.loops])
    if not shape:
        target[...] = source
        return
    # In slabs of what is adjacent in the input: a transpose then reuses the lines it has read.
    near = min(range(len(shape)), key=lambda k: abs(piece.loops[k][1]) or math.inf)
    source, target = np.moveaxis(source, near, 0), np.moveaxis(target, near, 0)
    step = _SLAB if abs(piece.loops[near][2]) > 1 else shape[near]
    for start in range(0, shape[near], step):
        target[start : start + step] = source[start : start + step]


def differs(name: str, made: Iterable[NDArray[np.uint8]], wanted: NDArray[np.uint8]) -> str | None:
    """What is wrong with the arrays that a call made, compared as bytes, or None.

    >>> wanted = np.zeros(2, np.uint8)
    >>> differs("it", [np.zeros(1, np.uint8), np.ones(1, np.uint8)], wanted)
    'it: byte 1 of 2 is wrong'
    """
    at = 0
    for part in made:
        for start in range(0, part.size, _STEP):
            block = part[start : start + _STEP]
            same = wanted[at : at + block.size]
            if same.size != block.size:
                return f"{name}: more than the {wanted.size} bytes of the answer"
            if not np.array_equal(block, same):
                return (
                    f"{name}: byte {at + int(np.argmax(block != same))} of {wanted.size} is wrong"
                )
            at += block.size
    return None if at == wanted.size else f"{name}: {at} bytes, the answer has {wanted.size}"
