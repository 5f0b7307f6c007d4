"""The oracle: what numpy says a strided copy does, and buffers that reveal a stray byte."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from numpy.lib.stride_tricks import as_strided

import xlayout_native

Loops = tuple[tuple[int, int, int], ...]
Move = tuple[int, int, tuple[int, int, Loops]]
Place = tuple[int, int]
Places = tuple[Place, ...]

LIBC = ctypes.CDLL(None)
PAGE = mmap.PAGESIZE
CANARY = 0xA5
MARGIN = 192


class Buffer:
    """Bytes at any alignment, with canaries on both sides."""

    def __init__(self, count: int, *, shift: int = 0, fill: np.random.Generator | None = None):
        self.memory = np.empty(count + 2 * MARGIN + 64, np.uint8)
        self.count = count
        self.move(shift)
        if fill is not None:
            self.bytes[:] = fill.integers(0, 256, count, np.uint8)

    def move(self, shift: int) -> None:
        """Begin so many bytes past a line, with nothing written, in the same memory."""
        self.memory[:] = CANARY
        self.start = -self.memory.ctypes.data % 64 + MARGIN // 64 * 64 + shift
        self.bytes = self.memory[self.start : self.start + self.count]

    @property
    def address(self) -> int:
        """Where the bytes begin."""
        return int(self.bytes.ctypes.data)

    def intact(self) -> bool:
        """Whether no byte outside was written."""
        before, after = self.memory[: self.start], self.memory[self.start + self.count :]
        return bool((before == CANARY).all() and (after == CANARY).all())


def alike(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays hold the same bytes; numpy's comparisons take memory, and so longer."""
    places = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
    return x.nbytes == y.nbytes and LIBC.memcmp(*places, ctypes.c_size_t(x.nbytes)) == 0


def fenced(count: int, *, at_the_end: bool = True) -> np.ndarray:
    """Untouched bytes between two pages that may not be accessed, and adjacent to one of them."""
    room = -(-count // PAGE) * PAGE
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = np.frombuffer(mmap.mmap(-1, room + 2 * PAGE, flags=private), np.uint8)
    for fence in (memory.ctypes.data, memory.ctypes.data + PAGE + room):
        assert LIBC.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(PAGE), 0) == 0
    start = PAGE + (room - count if at_the_end else 0)
    return memory[start : start + count]


def expect(moves: list[Move], itemsize: int, sources: list[Buffer], targets: list[Buffer]) -> None:
    """The moves by numpy's own strided assignment, on element views of the same bytes."""
    for source, target, (start, to, loops) in moves:
        shape = [n for n, _, _ in loops]
        if 0 in shape:
            continue
        item = np.dtype((np.void, itemsize))
        reads = _window(sources[source], item, start, shape, [x for _, x, _ in loops])
        writes = _window(targets[target], item, to, shape, [z for _, _, z in loops])
        writes[...] = reads


def run(
    moves: list[Move],
    itemsize: int,
    sources: list[Buffer],
    targets: list[Buffer],
    *,
    threads: int = 1,
) -> None:
    """The moves by the kernel."""
    plan = xlayout_native.prepare(moves, itemsize, len(sources), len(targets))
    xlayout_native.run(plan, threads, *(b.address for b in (*sources, *targets)))


def same(
    moves: list[Move],
    itemsize: int,
    sources: list[Buffer],
    targets: list[Buffer],
    *,
    threads: int = 2,
) -> None:
    """Check that the kernel writes what numpy writes, and nothing outside."""
    wanted = [Buffer(y.bytes.size) for y in targets]
    expect(moves, itemsize, sources, wanted)
    run(moves, itemsize, sources, targets, threads=threads)
    for y, z in zip(targets, wanted, strict=True):
        assert alike(y.bytes, z.bytes)
        assert y.intact()


def agree(loops: Loops, itemsize: int, *places: Place) -> None:
    """Check the loops as a copy, with the result and the source so many bytes past a line.

    If no places are given, both begin on a line.
    """
    start = -sum((n - 1) * min(x, 0) for n, x, _ in loops)
    reads = 1 + sum((n - 1) * abs(x) for n, x, _ in loops)
    writes = 1 + sum((n - 1) * z for n, _, z in loops)
    moves = [(0, 0, (start, 0, loops))]
    content = Buffer(reads * itemsize, fill=np.random.default_rng(reads))
    wanted = Buffer(writes * itemsize)
    expect(moves, itemsize, [content], [wanted])
    x, y = Buffer(content.count), Buffer(wanted.count)
    for shift, first in places or [(0, 0)]:
        x.move(first)
        x.bytes[:] = content.bytes
        y.move(shift)
        run(moves, itemsize, [x], [y], threads=2)
        assert alike(y.bytes, wanted.bytes)
        assert y.intact()


def _window(
    buffer: Buffer, item: np.dtype[np.void], start: int, shape: list[int], strides: list[int]
) -> np.ndarray:
    first = buffer.bytes[start * item.itemsize :][: item.itemsize].view(item)
    return as_strided(first, shape, [s * item.itemsize for s in strides])
