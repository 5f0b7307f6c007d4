"""Bounds: a copy reads no byte before its source, nor behind it."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import xlayout_native
from tests.native.oracle import Buffer, Loops

pytestmark = pytest.mark.usefixtures("isa", "thresholds")

PAGE = mmap.PAGESIZE
NO_ACCESS, READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE


@contextmanager
def between_fences(count: int, *, at_the_end: bool) -> Iterator[np.ndarray]:
    """So many bytes, beside a page that must not be touched on either side, at one of them."""
    room = -(-count // PAGE) * PAGE
    memory = mmap.mmap(-1, room + 2 * PAGE)
    every = np.frombuffer(memory, np.uint8)
    protect = ctypes.CDLL(None).mprotect
    fences = [every.ctypes.data, every.ctypes.data + PAGE + room]
    start = PAGE + (room - count if at_the_end else 0)
    for fence in fences:
        assert protect(ctypes.c_void_p(fence), ctypes.c_size_t(PAGE), NO_ACCESS) == 0
    try:
        yield every[start : start + count]
    finally:
        for fence in fences:
            protect(ctypes.c_void_p(fence), ctypes.c_size_t(PAGE), READ_WRITE)


def weave(rows: int, count: int, ways: int, block: int) -> Loops:
    """Rows of `ways` columns of `count` blocks, to blocks of all of them in turn."""
    row = count * ways * block
    return (
        (rows, row, row),
        (count, block, ways * block),
        (ways, count * block, block),
        (block, 1, 1),
    )


def deal(rows: int, count: int, ways: int, block: int) -> Loops:
    """And back."""
    return tuple((n, z, x) for n, x, z in weave(rows, count, ways, block))


@pytest.mark.parametrize("shift", [0, 1, 16, 63])
@pytest.mark.parametrize("at_the_end", [False, True])
@pytest.mark.parametrize("form", [weave, deal])
@pytest.mark.parametrize(
    "shape",
    [
        *((37, half, 2, 1) for half in (17, 33, 40, 63, 64, 80, 96, 127, 500)),
        *((3, count, ways, 1) for count in (1025, 5001) for ways in (2, 4, 8)),
        *((3, 700, 2, block) for block in (2, 4, 8, 16, 32)),
        *((2, 300, 3, block) for block in (63, 64, 65, 100, 1000)),
        (1, 130, 130, 1),
        (1, 70, 71, 4),
    ],
)
def test_nothing_outside_is_read(
    form: Callable[[int, int, int, int], Loops],
    shape: tuple[int, int, int, int],
    at_the_end: bool,
    shift: int,
) -> None:
    loops = form(*shape)
    count = int(np.prod(shape))
    with between_fences(count, at_the_end=at_the_end) as x:
        x[:] = np.random.default_rng(count).integers(0, 256, count, np.uint8)
        y = Buffer(count, shift=shift)
        plan = xlayout_native.prepare([(0, 0, (0, 0, loops))], 1, 1, 1)
        xlayout_native.run(plan, 2, int(x.ctypes.data), y.address)
        axes = x.reshape(shape[0], shape[2], shape[1], shape[3])
        if form is deal:
            axes = x.reshape(shape)
        assert y.bytes.tobytes() == axes.swapaxes(1, 2).tobytes()
        assert y.intact()
