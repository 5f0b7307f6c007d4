"""Windows: large results, written part by part, hold every byte, on old pages and on new ones."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xlayout_native
from tests.native.oracle import Move, fenced

MB = 1 << 20
SIZE = 24 * MB
WIDTH = 4096
ROWS = SIZE // WIDTH
COUNT = 1_700_001  # rows, of which fourteen bytes each are less than that
BIG = 3001  # elements of two bytes; its square is beyond three windows

PAGE = 4096
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
Bytes = np.ndarray


def loops(*triples: tuple[int, int, int]) -> tuple[tuple[int, int, int], ...]:
    return triples


def into_columns(x: Bytes) -> Bytes:
    return np.concatenate(x.reshape(8, ROWS, WIDTH // 8), 1).ravel()


def odd_square(x: Bytes) -> Bytes:
    return x.view(np.uint16)[: BIG * BIG].reshape(BIG, BIG).T.ravel().view(np.uint8)


# name -> (moves, itemsize, what numpy does with the input)
CASES: dict[str, tuple[list[Move], int, Callable[[Bytes], Any]]] = {
    "one run": ([(0, 0, (0, 0, loops((SIZE - 5, 1, 1))))], 1, lambda x: x[: SIZE - 5]),
    "rows of two halves in turn": (
        [
            (
                0,
                0,
                (0, 0, loops((2, SIZE // 2, WIDTH), (ROWS // 2, WIDTH, 2 * WIDTH), (WIDTH, 1, 1))),
            )
        ],
        1,
        lambda x: x.reshape(2, ROWS // 2, WIDTH).swapaxes(0, 1),
    ),
    "columns of eight": (
        [
            (0, 0, (k * SIZE // 8, k * 512, loops((ROWS, 512, WIDTH), (512, 1, 1))))
            for k in range(8)
        ],
        1,
        into_columns,
    ),
    "a large piece and many small": (
        [
            (0, 0, (8 * MB, 0, loops((16 * MB, 1, 1)))),
            *(
                (0, 0, (k * MB // 8, 16 * MB + k * MB // 8, loops((MB // 8, 1, 1))))
                for k in range(64)
            ),
        ],
        1,
        lambda x: np.concatenate((x[8 * MB :], x[: 8 * MB])),
    ),
    "zip": (
        [(0, 0, (0, 0, loops((ROWS // 4, 8192, 8192), (4096, 1, 2), (2, 4096, 1))))],
        2,
        lambda x: x.view(np.uint16).reshape(-1, 2, 4096).swapaxes(1, 2),
    ),
    "unzip": (
        [(0, 0, (0, 0, loops((ROWS // 4, 8192, 8192), (2, 1, 4096), (4096, 2, 1))))],
        2,
        lambda x: x.view(np.uint16).reshape(-1, 4096, 2).swapaxes(1, 2),
    ),
    "rope": (
        [(0, 0, (0, 0, loops((SIZE // 128, 64, 64), (2, 1, 32), (32, 2, 1))))],
        2,
        lambda x: x.view(np.uint16).reshape(-1, 32, 2).swapaxes(1, 2),
    ),
    "blocks of lines": (
        [
            (
                0,
                0,
                (0, 0, loops((SIZE // 8192, 8192, 8192), (2, 64, 4096), (64, 128, 64), (64, 1, 1))),
            )
        ],
        1,
        lambda x: x.reshape(-1, 64, 2, 64).swapaxes(1, 2),
    ),
    "transpose": (
        [(0, 0, (0, 0, loops((6144, 1, 4096), (4096, 6144, 1))))],
        1,
        lambda x: x.reshape(4096, 6144).T,
    ),
    "transpose, odd": ([(0, 0, (0, 0, loops((BIG, 1, BIG), (BIG, BIG, 1))))], 2, odd_square),
    "unzip into three": (
        [(0, 0, (0, 0, loops((3, 1, SIZE // 6), (SIZE // 6, 3, 1))))],
        2,
        lambda x: x.view(np.uint16).reshape(-1, 3).T,
    ),
    "rows of lines into three, twice": (
        [
            (
                0,
                0,
                (
                    0,
                    0,
                    loops(
                        (2, SIZE // 2, SIZE // 2),
                        (3, 64, SIZE // 6),
                        (SIZE // 384, 192, 64),
                        (64, 1, 1),
                    ),
                ),
            )
        ],
        1,
        lambda x: x.reshape(2, -1, 3, 64).swapaxes(1, 2),
    ),
    "seven columns of pairs": (
        [(0, 0, (0, 0, loops((7, 2, COUNT), (2, 1, 7 * COUNT), (COUNT, 14, 1))))],
        1,
        lambda x: x[: 14 * COUNT].reshape(COUNT, 7, 2).transpose(2, 1, 0),
    ),
    "transposes": (
        [(0, 0, (0, 0, loops((12, 1 << 20, 1 << 20), (512, 1, 2048), (2048, 512, 1))))],
        2,
        lambda x: x.view(np.uint16).reshape(12, 2048, 512).swapaxes(1, 2),
    ),
}


@pytest.fixture(scope="module")
def source() -> Bytes:
    """Bytes that begin on a cache line."""
    memory = np.empty(SIZE + 128, np.uint8)
    memory[:] = np.random.default_rng(3).integers(0, 256, memory.size, np.uint8)
    return memory[-memory.ctypes.data % 64 :]


@pytest.mark.parametrize(
    ("untouched", "shift", "threads"),
    [(True, 0, 1), (True, 0, 2), (True, 16, 2), (True, 16, 5), (False, 16, 2), (False, 5, 5)],
)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("isa")
def test_every_byte(source: Bytes, name: str, untouched: bool, shift: int, threads: int) -> None:
    moves, itemsize, expected = CASES[name]
    x = source[shift : shift + SIZE]
    memory = np.frombuffer(mmap.mmap(-1, SIZE + 4 * PAGE, flags=PRIVATE), np.uint8)
    if not untouched:
        memory[:] = 0xA5
    xlayout_native.huge_pages(memory.ctypes.data, memory.nbytes)
    start = PAGE + shift
    plan = xlayout_native.prepare(moves, itemsize, 1, 1)
    xlayout_native.run(plan, threads, x.ctypes.data, memory.ctypes.data + start)
    wanted = np.ascontiguousarray(expected(np.ascontiguousarray(x))).reshape(-1).view(np.uint8)
    assert (memory[start : start + wanted.size] == wanted).all()
    around = 0 if untouched else 0xA5
    assert (memory[:start] == around).all()
    assert (memory[start + wanted.size :] == around).all()


@pytest.mark.parametrize("threads", [2, 4])
def test_results_that_share_pages(source: Bytes, threads: int) -> None:
    """One begins where another ends, on a page that they share."""
    sizes = [7 * PAGE * k for k in range(1, 33)]
    ends = list(itertools.accumulate(sizes))
    assert 8 * MB < ends[-1] <= SIZE  # beyond the caches: smaller results are not touched before
    memory = np.frombuffer(mmap.mmap(-1, ends[-1], flags=PRIVATE), np.uint8)
    xlayout_native.huge_pages(memory.ctypes.data, memory.nbytes)
    starts = [end - size for end, size in zip(ends, sizes, strict=True)]
    moves: list[Move] = [
        (0, k, (start, 0, loops((size, 1, 1))))
        for k, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]
    plan = xlayout_native.prepare(moves, 1, 1, len(moves))
    places = [memory.ctypes.data + start for start in starts]
    xlayout_native.run(plan, threads, source.ctypes.data, *places)
    assert (memory == source[: ends[-1]]).all()


@pytest.mark.parametrize("shift", [0, 16, 48])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("isa")
def test_nothing_outside_is_read_or_touched(source: Bytes, name: str, shift: int) -> None:
    moves, itemsize, expected = CASES[name]
    x = fenced(SIZE)
    x[:] = source[:SIZE]
    wanted = np.ascontiguousarray(expected(x)).reshape(-1).view(np.uint8)
    made = fenced(wanted.size + shift)[: wanted.size]
    plan = xlayout_native.prepare(moves, itemsize, 1, 1)
    xlayout_native.run(plan, 2, x.ctypes.data, made.ctypes.data)
    assert (made == wanted).all()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_pages_between_rows_are_not_asked_for(source: Bytes, threads: int) -> None:
    """Rows of one page, sixteen pages apart, in memory that the system has not yet provided."""
    rows, apart = 9 * MB // PAGE, 16 * PAGE
    memory = np.frombuffer(mmap.mmap(-1, rows * apart, flags=PRIVATE), np.uint8)
    plan = xlayout_native.prepare(
        [(0, 0, (0, 0, loops((rows, PAGE, apart), (PAGE, 1, 1))))], 1, 1, 1
    )
    xlayout_native.run(plan, threads, source.ctypes.data, memory.ctypes.data)
    there = (ctypes.c_ubyte * (memory.size // PAGE))()
    place = ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.size)
    assert ctypes.CDLL(None).mincore(*place, there) == 0
    assert sum(byte & 1 for byte in there) == rows
    assert (
        memory.reshape(rows, apart)[:, :PAGE] == source[: rows * PAGE].reshape(rows, PAGE)
    ).all()
