"""Before a device is used, the kernel makes a few moves there; each has to come out right."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from typing import Any

import pytest
import torch

from xlayout_torch import cuda, trial
from xlayout_torch.batch import Batch, move_many
from xlayout_triton.plan import planned
from xlayout_triton.uncompiled import CompileError
from xlayout_triton.words import SHIFTED, SHIFTS, TRIED

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What was tried before."""
    trial.is_right.cache_clear()
    yield
    trial.is_right.cache_clear()


def window(x: torch.Tensor, itemsize: int, first: int, loops: Any, side: int) -> torch.Tensor:
    """The elements of one side of some loops, as bytes."""
    sizes, steps = [loop[0] for loop in loops], [loop[side] * itemsize for loop in loops]
    whole = torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage())
    begin = x.storage_offset() * x.itemsize + first * itemsize
    return whole.as_strided((*sizes, itemsize), (*steps, 1), begin)


def by_hand(left_out: int | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Have copies on trial made as they should be, but for one; counts them."""
    numbers = count()

    def copy(moves: Any, itemsize: int, xs: list[Any], ys: list[Any]) -> None:
        for source, target, (start, to, loops) in moves:
            if next(numbers) != left_out:
                made = window(xs[source], itemsize, start, loops, 1)
                window(ys[target], itemsize, to, loops, 2).copy_(made)

    monkeypatch.setattr(trial, "_copy", copy)
    return numbers


@pytest.mark.parametrize("left_out", [None, *range(4)])
def test_one_move_that_is_not_made_is_enough_to_fail(
    left_out: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = by_hand(left_out, monkeypatch)
    found = cuda.tried.__wrapped__(CPU)
    assert found == ("" if left_out is None else "a trial came out wrong")
    assert next(numbers) == 4


@pytest.mark.parametrize("kind", TRIED)
@pytest.mark.parametrize("left_out", [None, 0])
def test_each_way_in_words_is_tried_by_itself(
    kind: tuple[int, int], left_out: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = by_hand(left_out, monkeypatch)
    assert trial.is_right(*kind, CPU) is (left_out is None)
    assert trial.is_right(*kind, CPU) is (left_out is None)
    assert next(numbers) == 1


@pytest.mark.parametrize("kind", TRIED)
def test_its_matrix_is_moved_in_this_way(kind: tuple[int, int], started: list[Any]) -> None:
    assert not trial.is_right(*kind, CPU)
    assert [plan.in_words for plan, *_ in started] == [{kind}]


@pytest.mark.parametrize("kind", TRIED)
def test_all_ways_are_right(kind: tuple[int, int], device: str) -> None:
    assert trial.is_right(*kind, torch.device(device))


def test_what_is_not_compiled_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other of its kind will be, and then a line says why."""

    def fails(*_args: Any) -> None:
        raise CompileError("no such instruction")

    monkeypatch.setattr(trial, "_copy", fails)
    assert trial.is_right(SHIFTED, 1, CPU)


def test_a_trial_that_fails_for_now_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_args: Any) -> None:
        raise RuntimeError("out of memory\nsee the manual")

    monkeypatch.setattr(trial, "_copy", fails)
    with pytest.raises(CompileError, match=r"^out of memory$"):
        trial.is_right(SHIFTED, 1, CPU)
    by_hand(None, monkeypatch)
    assert trial.is_right(SHIFTED, 1, CPU)


def turned(rows: int, columns: int, itemsize: int) -> Any:
    """A transpose as a call of `planned`."""
    move = 0, 0, (0, 0, ((rows, columns, 1), (columns, 1, rows)))
    return (move,), itemsize, [16], [16]


def test_of_a_plan_all_that_is_moved_in_words_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what comes out wrong is refused; vectors are not asked about."""
    made = planned(*(turned(301, 300, size) for size in (*SHIFTS, 8)), turned(64, 64, 1))
    assert made is not None
    assert made.in_words == {(SHIFTED, size) for size in SHIFTS}
    asked: set[Any] = set()
    monkeypatch.setattr(trial, "is_right", lambda *kind: not asked.add(kind))
    trial.require(made, CPU)
    assert asked == {(SHIFTED, size, CPU) for size in SHIFTS}
    monkeypatch.setattr(trial, "is_right", lambda _way, size, _device: size != 4)
    with pytest.raises(CompileError, match=r"^a trial of their kind came out wrong$"):
        trial.require(made, CPU)


def test_nothing_is_moved_in_a_way_that_is_wrong(
    started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone or among others; what is moved in vectors is."""
    monkeypatch.setattr(cuda, "why_not", lambda _device: "")
    monkeypatch.setattr(trial, "is_right", lambda *_kind: False)
    x, y = torch.zeros(2, 300 * 304, dtype=torch.uint8).unbind()
    odd, even = (turned(300, columns, 1)[0] for columns in (301, 304))
    ends = [x.data_ptr()], [y.data_ptr()]
    with pytest.raises(CompileError, match="a trial of their kind came out wrong"):
        cuda.copy(odd, 1, *ends, CPU)
    with pytest.raises(CompileError, match="a trial of their kind came out wrong"):
        Batch.prepared([(even, [x], [y]), (odd, [x], [y])], once=True)
    with pytest.warns(RuntimeWarning, match="a trial of their kind came out wrong"):
        assert not move_many([(even, [x], [y]), (odd, [x], [y])])
    assert started == []
    assert cuda.copy(even, 1, *ends, CPU)
    assert move_many([(even, [x], [y])])
    assert len(started) == 2


GPU = torch.device("cuda", 0)


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What `torch.cuda.set_sync_debug_mode` was set to; the last one is in force."""
    seen = [2]
    names = {"default": 0, "warn": 1, "error": 2}
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: seen[-1])
    monkeypatch.setattr(
        torch.cuda, "set_sync_debug_mode", lambda mode: seen.append(names.get(mode, mode))
    )
    return seen


@pytest.mark.parametrize("fails", [False, True])
def test_it_may_wait_for_the_device_where_waiting_is_an_error(
    fails: bool, modes: list[int]
) -> None:
    """And it is an error again afterwards."""
    with (
        pytest.raises(KeyError, match="no compiler") if fails else nullcontext(),
        trial._waiting(GPU),
    ):
        assert modes == [2, 0]
        if fails:
            raise KeyError("no compiler")
    assert modes == [2, 0, 2]


def test_trials_of_two_threads_leave_the_mode_as_it_was(modes: list[int]) -> None:
    begun, end = threading.Event(), threading.Event()

    def wait() -> None:
        with trial._waiting(GPU):
            begun.set()
            assert end.wait(10)

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    threads[1].join(0.05)  # it has met the first one, or would have
    end.set()
    for thread in threads:
        thread.join()
    assert modes == [2, 0, 2, 0, 2]


def test_without_a_gpu_there_is_no_mode_to_set(modes: list[int]) -> None:
    with trial._waiting(CPU):
        assert modes == [2]


def test_each_trial_waits_so(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []

    def waiting(device: torch.device) -> Any:
        waited.append(device)
        return nullcontext()

    monkeypatch.setattr(trial, "_waiting", waiting)
    by_hand(None, monkeypatch)
    assert trial.passes(CPU)
    assert trial.is_right(SHIFTED, 2, CPU)
    assert waited == [CPU, CPU]
