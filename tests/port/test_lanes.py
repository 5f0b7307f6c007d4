"""Jobs go on side by side, each in memory of its own, and end together when one fails."""

from __future__ import annotations

import errno
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

import xlayout as xl
from tests.port.formats.programs import script
from xlayout.port import lanes as module
from xlayout.port.lanes import side_by_side
from xlayout.port.move import Buffers
from xlayout_native.switch import wanted

LANES = 3


def address(buffers: Buffers) -> int:
    start: int = buffers.carve(0, np.dtype(np.uint8), (8,)).ctypes.data
    return start


def test_as_many_as_there_are_lanes_go_on_at_a_time_in_memory_of_their_own() -> None:
    """Each waits for two others: with fewer at a time, this would never end."""
    together = threading.Barrier(LANES, timeout=60)
    seen: list[int] = []

    def job(number: int, buffers: Buffers) -> int:
        mine = buffers.carve(0, np.dtype(np.int64), (1,))
        mine[0] = number
        together.wait()
        together.wait()  # all have written by now
        seen.append(address(buffers))
        return int(mine[0])

    ended: list[int] = []
    side_by_side([partial(job, k) for k in range(4 * LANES)], ended.append, lanes=LANES, nbytes=8)
    assert sorted(ended) == list(range(4 * LANES))
    assert len(set(seen)) == LANES


def test_what_is_told_of_them_is_told_here() -> None:
    where: set[int] = set()
    jobs: list[Callable[[Buffers], int]] = [lambda _: threading.get_ident()] * 5
    side_by_side(jobs, lambda _: where.add(threading.get_ident()), lanes=2, nbytes=1)
    assert where == {threading.get_ident()}


@pytest.mark.parametrize("lanes", [1, LANES])
def test_where_one_fails_no_other_begins_and_those_on_their_way_end(lanes: int) -> None:
    failed = threading.Event()
    begun: list[int] = []
    ended: list[int] = []

    def job(number: int, _: Buffers) -> None:
        begun.append(number)
        if number == lanes - 1:
            failed.set()
            raise OSError("the disk")
        failed.wait(60)
        ended.append(number)

    with pytest.raises(OSError, match="the disk"):
        side_by_side([partial(job, k) for k in range(50)], print, lanes=lanes, nbytes=1)
    # What ended with it may have let one more begin.
    assert set(ended) == set(begun) - {lanes - 1}
    assert len(begun) < 2 * lanes + 1


def test_an_interrupt_waits_for_those_on_their_way() -> None:
    ended: list[int] = []

    def job(number: int, _: Buffers) -> None:
        if number:
            told.wait(60)
        ended.append(number)

    def interrupt(_: object) -> None:
        told.set()
        raise KeyboardInterrupt("by hand")

    told = threading.Event()
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        side_by_side([partial(job, k) for k in range(50)], interrupt, lanes=2, nbytes=1)
    assert sorted(ended) == [0, 1]


@pytest.mark.parametrize("first", ["KeyboardInterrupt", "OSError"])
def test_a_second_interrupt_waits_for_them_too(first: str) -> None:
    """A process of its own, as the signals are real."""
    program = script(
        f"""
        import signal, threading
        from xlayout.port.lanes import side_by_side

        def slow(_):
            for _ in range(4):
                time.sleep(0.1)
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
            print("ended", flush=True)

        def told(_):
            raise {first}("at first")

        try:
            side_by_side([lambda _: None, slow, slow], told, lanes=2, nbytes=1)
        except {first}:
            print("told")
        """
    )
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["ended", "told"], done.stderr


def test_they_see_what_their_caller_said_of_the_kernel() -> None:
    seen: list[bool] = []
    jobs: list[Callable[[Buffers], bool]] = [lambda _: wanted()] * 3
    with xl.native(False):
        side_by_side(jobs, seen.append, lanes=2, nbytes=1)
    assert seen == [False] * 3


def test_memory_is_that_of_the_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    class Counted(Buffers):
        def __init__(self, nbytes: int, /) -> None:
            taken.append(nbytes)
            super().__init__(nbytes)

    monkeypatch.setattr(module, "Buffers", Counted)
    side_by_side([address] * 20, print, lanes=LANES, nbytes=64)
    assert taken == [64] * LANES


def test_where_no_thread_can_be_started_those_on_their_way_end(
    no_more_threads: Callable[[], int],
) -> None:
    begun, told = threading.Event(), threading.Event()
    ended: list[int] = []

    def job(number: int, _: Buffers) -> None:
        begun.set()
        told.wait(1)
        ended.append(number)

    def jobs() -> Iterator[Callable[[Buffers], None]]:
        yield partial(job, 0)
        begun.wait(60)
        no_more_threads()
        yield partial(job, 1)

    wanted = r"can't start new thread, 1 of 2 run; wanted a higher limit \(ulimit -u or -v\)$"
    with pytest.raises(OSError, match=wanted) as caught:
        side_by_side(jobs(), print, lanes=2, nbytes=1)
    assert caught.value.errno == errno.EAGAIN
    assert ended == [0]


def test_what_the_work_says_of_threads_is_told_as_it_is() -> None:
    def job(_: Buffers) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError, match=r"^can't start new thread$"):
        side_by_side([job], print, lanes=2, nbytes=1)
