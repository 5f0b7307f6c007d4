"""A plan between arrays that expose their memory: it runs, or it declines and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import xlayout as xl
import xlayout_native
from xlayout_native.strided import WIDEST, one_move

pytestmark = pytest.mark.skipif(not xlayout_native.available, reason="there is no kernel")

TRANSPOSE = one_move((4, 6), (1, 4))  # of a row-major (6, 4)


def source(dtype: Any = np.int32) -> np.ndarray:
    return np.arange(24, dtype=np.int32).astype(dtype).reshape(6, 4)


def read_only(y: np.ndarray) -> np.ndarray:
    y.flags.writeable = False
    return y


@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.bfloat16, np.float32, "M8[s]", np.complex128])
def test_it_runs_between_row_major_arrays(dtype: Any, threads: int) -> None:
    x = read_only(source(dtype))
    y = np.zeros((4, 6), dtype)
    assert xlayout_native.run_arrays(
        xlayout_native.prepare(TRANSPOSE, x.itemsize, 1, 1), threads, x, y
    )
    assert (y == x.T).all()


def test_it_runs_between_more_arrays_than_a_call_has_room_for() -> None:
    count = 40
    moves = tuple((k, k, TRANSPOSE[0][2]) for k in range(count))
    xs = [source() + k for k in range(count)]
    ys = [np.zeros((4, 6), np.int32) for _ in xs]
    plan = xlayout_native.prepare(moves, 4, count, count)
    assert xlayout_native.run_arrays(plan, 1, *xs, *ys)
    assert all((y == x.T).all() for x, y in zip(xs, ys, strict=True))
    assert not xlayout_native.run_arrays(plan, 1, *xs, *ys[1:], ys[1])


def test_any_memory_that_is_shown_will_do() -> None:
    x, y = bytes(range(24)), bytearray(24)
    assert xlayout_native.run_arrays(xlayout_native.prepare(TRANSPOSE, 1, 1, 1), 1, x, y)
    assert bytes(y) == np.frombuffer(x, np.uint8).reshape(6, 4).T.tobytes()


def test_strides_of_one_element_and_of_none_mean_nothing() -> None:
    x = np.lib.stride_tricks.as_strided(source(), (1, 6, 4), (7, 16, 4))
    y = np.zeros((4, 6), np.int32)
    assert xlayout_native.run_arrays(xlayout_native.prepare(TRANSPOSE, 4, 1, 1), 1, x, y)
    assert (y == source().T).all()
    none = np.zeros((6, 0, 4))[::2]
    assert xlayout_native.run_arrays(xlayout_native.prepare((), 8, 1, 1), 1, none, np.zeros((0, 3)))


WHOLE = np.zeros(64, np.int32)
REFUSED: dict[str, Callable[[], tuple[Any, Any]]] = {
    "columns first": lambda: (source().T.copy().T, np.zeros((4, 6), np.int32)),
    "every other row": lambda: (np.zeros((12, 4), np.int32)[::2], np.zeros((4, 6), np.int32)),
    "rows backwards": lambda: (source()[::-1], np.zeros((4, 6), np.int32)),
    "a result by columns": lambda: (source(), np.zeros((6, 4), np.int32).T),
    "a result that is read-only": lambda: (source(), read_only(np.zeros((4, 6), np.int32))),
    "a result in its input": lambda: (WHOLE[:24], WHOLE[:24]),
    "a result that starts in its input": lambda: (WHOLE[:24], WHOLE[23:47]),
    "a result that ends in its input": lambda: (WHOLE[23:47], WHOLE[:24]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nothing_is_written_where_it_says_no(case: str) -> None:
    x, y = REFUSED[case]()
    before = x.copy(), y.copy()
    assert not xlayout_native.run_arrays(xlayout_native.prepare(TRANSPOSE, 4, 1, 1), 1, x, y)
    assert (x == before[0]).all()
    assert (y == before[1]).all()


def test_neighbours_are_apart() -> None:
    plan = xlayout_native.prepare(TRANSPOSE, 8, 1, 1)
    for x, y in (np.arange(48).reshape(2, 24), np.arange(48).reshape(2, 24)[::-1]):
        assert xlayout_native.run_arrays(plan, 1, x, y)
        assert (y.reshape(4, 6) == x.reshape(6, 4).T).all()


def test_two_results_lie_apart() -> None:
    moves = (*TRANSPOSE, (0, 1, TRANSPOSE[0][2]))
    plan, y = xlayout_native.prepare(moves, 4, 1, 2), np.zeros((4, 6), np.int32)
    assert not xlayout_native.run_arrays(plan, 1, source(), y, y)
    assert xlayout_native.run_arrays(plan, 1, source(), y, y.copy())


def test_what_is_no_array_is_refused() -> None:
    plan = xlayout_native.prepare(TRANSPOSE, 4, 1, 1)
    with pytest.raises(TypeError, match="bytes-like object"):
        xlayout_native.run_arrays(plan, 1, source(), [0])
    with pytest.raises(TypeError, match="3 arguments; wanted the plan, threads, 1 \\+ 1 arrays"):
        xlayout_native.run_arrays(plan, 1, source())
    with pytest.raises(ValueError, match="PyCapsule"):
        xlayout_native.run_arrays(b"plan", 1)  # type: ignore[arg-type]


def test_wider_elements_than_it_copies_are_numpys() -> None:
    assert xlayout_native.prepare(TRANSPOSE, WIDEST, 1, 1)
    with pytest.raises(ValueError, match="itemsize: "):
        xlayout_native.prepare(TRANSPOSE, WIDEST + 1, 1, 1)
    x = np.array([b"a", b"b", b"c", b"d"], f"S{WIDEST + 1}")
    for given in (x, np.repeat(x, 2)[::2]):
        out = np.zeros_like(x)
        for _ in range(2):  # the second call knows the way
            assert xl.interleave(given, out=out).tolist() == [b"a", b"c", b"b", b"d"]
