"""Cases: strided copies for the Triton kernel, random ones and one of each family."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from tests.native.oracle import Buffer, Loops, Move, expect
from tests.native.test_copy import permuted, span

__all__ = [
    "EDGES",
    "FAMILIES",
    "IMAGES",
    "ITEMSIZES",
    "NARROW_EDGES",
    "PATCHES",
    "between",
    "compounds",
    "prepared",
    "several",
]

ITEMSIZES = (1, 2, 4, 8, 16)

PATCHES, IMAGES = (0, 2, 4, 3, 5, 1), (0, 5, 1, 3, 2, 4)
"""`b c (h p) (w q) -> b (h w) (p q c)`, of axes (b, c, h, p, w, q), and the way back."""

# name -> (shape, axes): several tiles each, with edges, when an element is 4 bytes.
_SHAPES = {
    "one run": ((70_001,), (0,)),
    "row blocks": ((2, 5, 3004), (1, 0, 2)),
    "odd rows": ((2, 7, 1501), (1, 0, 2)),
    "blocks of a line": ((5, 12, 32), (1, 0, 2)),
    "blocks of a vector": ((9, 2, 64, 4), (0, 2, 1, 3)),
    "zip": ((2, 9001), (1, 0)),
    "zip rows": ((5, 2, 2048), (0, 2, 1)),
    "zip 4": ((4, 3001), (1, 0)),
    "zip 3": ((3, 4001), (1, 0)),
    "unzip": ((9001, 2), (1, 0)),
    "unzip rows": ((37, 64, 2), (0, 2, 1)),
    "unzip 8 rows": ((3, 1003, 8), (0, 2, 1)),
    "transpose": ((128, 192), (1, 0)),
    "transpose odd": ((131, 197), (1, 0)),
    "transpose odd rows": ((2, 301, 261), (0, 2, 1)),
    "transpose tall": ((1001, 12), (1, 0)),
    "transpose wide": ((12, 1001), (1, 0)),
    "transpose batch": ((3, 65, 68), (0, 2, 1)),
    "channels": ((2, 4001, 3), (0, 2, 1)),
    "channels, aligned": ((2, 4096, 3), (0, 2, 1)),
    "channels of rows": ((3, 1999, 2, 3), (0, 2, 3, 1)),
    "channels last": ((2, 3, 4001), (0, 2, 1)),
    "channels last, aligned": ((2, 3, 4096), (0, 2, 1)),
    "rows of channels": ((3, 2, 3, 1999), (0, 1, 3, 2)),
    "two rows": ((2, 4003), (1, 0)),
    "seven rows": ((7, 3001), (1, 0)),
    "two columns": ((4003, 2), (1, 0)),
    "seven columns": ((3001, 7), (1, 0)),
    "four axes": ((7, 10, 6, 33), (2, 0, 3, 1)),
    "rows of two loops": ((3, 2, 40, 150), (3, 0, 2, 1)),
    "columns of two loops": ((150, 3, 40, 2), (1, 3, 2, 0)),
    "rows of two odd loops": ((3, 45, 77), (2, 1, 0)),
    "columns of two odd loops": ((2, 77, 45, 3), (3, 2, 0, 1)),
    "one loop for either": ((2, 1501, 3), (2, 1, 0)),
    "patches": ((2, 3, 3, 16, 5, 16), PATCHES),
    "images": ((2, 3, 5, 16, 16, 3), IMAGES),
    "tokens": ((3, 5, 7, 2, 68, 2), PATCHES),
    "latents": ((3, 7, 68, 2, 2, 5), IMAGES),
}

FAMILIES: dict[str, Loops] = {name: permuted(*case) for name, case in _SHAPES.items()} | {
    "tokens, repeated": ((40, 2, 24), (3, 0, 8), (2, 1, 4), (4, 80, 1)),
    "tokens, backwards": ((40, 2, 16), (2, 320, 8), (2, 1, 4), (4, -80, 1)),
    "tokens, with gaps between": ((40, 2, 27), (3, 320, 9), (2, 1, 4), (4, 80, 1)),
    "latents, with gaps between": ((40, 27, 2), (3, 9, 320), (4, 1, 80), (2, 4, 1)),
    "row blocks, with odd gaps between": ((3, 641, 643), (5, 64, 128), (2, 320, 64), (64, 1, 1)),
}
"""Transpositions of row-major arrays, one that repeats, one that turns, and three with gaps."""

EDGES = [
    ((2 * b // itemsize + more, 2 * a // itemsize + wider), itemsize)
    for itemsize, b, a in ((1, 248, 124), (2, 224, 248), (4, 224, 248))
    for more in sorted({-8 // itemsize, -1, 0, 1, 8 // itemsize, 32 // itemsize - 1})
    for wider in (0, 1)
]
"""(shape, bytes of an element) of transposes that end near where tiles of shifted rows do."""

NARROW_EDGES = [
    ((31 * 8 // itemsize * rows + more, columns), itemsize)
    for itemsize in (1, 2)
    for columns, rows in ((3, 8), (5, 4))
    for more in (-8 // itemsize, -1, 0, 1, 8 // itemsize - 1, 8 // itemsize, 9)
]
"""The same of tiles of a few columns."""


@st.composite
def compounds(draw: st.DrawFn, most: int) -> Loops:
    """Transposes whose innermost loops are short, in the input, in the output or in both."""
    short, some = st.integers(2, 9), st.sampled_from((2, 3, 8, 17, 40, 64, 130))
    ends = draw(st.sampled_from(((short, short), (short, some), (some, short))))
    shape = [draw(ends[0]), *draw(st.lists(some, min_size=1, max_size=3)), draw(ends[1])]
    while math.prod(shape) > most:
        shape.remove(max(shape))
    axes = draw(st.permutations(range(1, len(shape))))
    return permuted(tuple(shape), (*axes, 0))


def between(loops: Loops) -> tuple[Move, int, int]:
    """The move of some loops between two buffers that just hold it, and their sizes."""
    before, count = span(loops, 1)
    after, size = span(loops, 2)
    return (0, 0, (before, after, loops)), count, size


def prepared(loops: Loops, itemsize: int, shift: int) -> tuple[Move, Buffer, Buffer, Buffer]:
    """(move, source, target, another target); `shift` picks how the buffers lie in memory."""
    move, count, size = between(loops)
    source = Buffer(count * itemsize, shift=shift % 64, fill=np.random.default_rng(7))
    return move, source, *(Buffer(size * itemsize, shift=shift // 64) for _ in range(2))


def several() -> tuple[list[Move], list[Buffer], list[Buffer], list[Buffer]]:
    """Moves of several kinds between buffers: from which, to which, and how these are to end."""
    moves: list[Move] = [
        (0, 0, (5, 7, ((100, 1, 1),))),
        (1, 0, (0, 200, ((40, 1, 30), (30, 40, 1)))),
        (1, 1, (0, 0, ((4, 100, 1), (100, 1, 4)))),
        (0, 1, (0, 1000, ((3000, 1, 1),))),
        (0, 1, (0, 4000, ((0, 1, 1),))),
    ]
    sources = [Buffer(4 * 4000, fill=np.random.default_rng(k)) for k in range(2)]
    made, wanted = ([Buffer(4 * 4000), Buffer(4 * 4000)] for _ in range(2))
    expect(moves, 4, sources, wanted)
    return moves, sources, made, wanted
