"""Before a device is used, the kernel makes a few moves there; each has to come out right."""

from __future__ import annotations

import ctypes
import threading
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import as_strided

from xlayout_torch import cuda, launches, trial
from xlayout_triton.uncompiled import CompileError
from xlayout_triton.words import FEW_COLUMNS, FEW_ROWS, SHIFTED, VECTORS

KINDS = {1: ctypes.c_uint8, 4: ctypes.c_int32}


def window(address: int, itemsize: int, first: int, loops: Any, side: int) -> np.ndarray:
    """The elements of one side of some loops, in memory that begins at an address."""
    one = np.ctypeslib.as_array((KINDS[itemsize] * 1).from_address(address + first * itemsize))
    return as_strided(one, [loop[0] for loop in loops], [loop[side] * itemsize for loop in loops])


def move(source: int, target: int, itemsize: int, start: int, to: int, loops: Any) -> None:
    """Make a copy as it should be made."""
    made = window(source, itemsize, start, loops, 1)
    window(target, itemsize, to, loops, 2)[...] = made


@pytest.mark.parametrize("left_out", [None, *range(4)])
def test_one_move_that_is_not_made_is_enough_to_fail(
    left_out: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(moves: Any, itemsize: int, xs: list[int], ys: list[int], _device: Any) -> bool:
        for source, target, (start, to, loops) in moves:
            if next(numbers) != left_out:
                move(xs[source], ys[target], itemsize, start, to, loops)
        return True

    numbers = count()
    monkeypatch.setattr(cuda, "copy", copy)
    found = cuda.why_not.__wrapped__(torch.device("cpu"))
    assert found == ("" if left_out is None else "a trial came out wrong")


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("fails", [False, True])
def test_ways_in_words_are_tried_one_by_one(
    number: int, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one comes out wrong it is refused; if it is not compiled, no other of its kind will be."""

    def copy(moves: Any, itemsize: int, xs: list[int], ys: list[int], _device: Any) -> bool:
        this = next(numbers)
        if this == 2 + number and fails:
            raise CompileError("no such instruction")
        for source, target, (start, to, loops) in moves:
            if this != 2 + number:
                move(xs[source], ys[target], itemsize, start, to, loops)
        return True

    refused: list[Any] = []
    numbers, cpu = count(), torch.device("cpu")
    monkeypatch.setattr(launches, "refuse", lambda *args: refused.append(args))
    assert trial.passes(cpu, copy)
    ways = SHIFTED, FEW_COLUMNS, FEW_ROWS
    assert refused == ([] if fails else [(ways[number], cpu)])
    assert next(numbers) == 5


def test_the_trial_has_a_matrix_for_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(launches, "launch", lambda plan, *_args: made.append(plan))
    monkeypatch.setattr(trial, "_vectors", lambda *_args: True)
    monkeypatch.setattr(launches, "refuse", lambda *_args: None)
    assert trial.passes(torch.device("cpu"), cuda.copy)
    tiles = [one.tile for plan in made for one in plan.launches]
    assert [tile.way for tile in tiles] == [SHIFTED, FEW_COLUMNS, FEW_ROWS]


def test_what_is_refused_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is compiled already, nor others; those in vectors have theirs."""
    made: list[Any] = []
    monkeypatch.setattr(launches, "launch", lambda plan, *_args: made.append(plan))
    monkeypatch.setattr(launches, "wrong", set())
    cpu, other = torch.device("cpu"), torch.device("meta")
    for rows, columns in ((300, 301), (301, 300), (64, 64)):
        move = 0, 0, (0, 0, ((rows, columns, 1), (columns, 1, rows)))
        assert cuda.copy((move,), 1, [1 << 12], [1 << 20], cpu)
    kinds = [(False, 0, plan.launches[0].tile) for plan in made]
    assert [kind[2].way for kind in kinds] == [SHIFTED, SHIFTED, VECTORS]
    kernels = {(kind, device): "kernel" for kind in (kinds[0], kinds[2]) for device in (cpu, other)}
    monkeypatch.setattr(launches, "_kernels", kernels)
    launches.refuse(SHIFTED, cpu)
    assert [*kernels] == [(kinds[0], other), (kinds[2], cpu), (kinds[2], other)]
    table = torch.zeros(1)
    with pytest.raises(CompileError, match="a trial of their kind came out wrong"):
        launches._first(made[1].launches[0], (table, *[None] * 6, *kinds[1]), 0)


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
    monkeypatch.setattr(launches, "interprets", lambda: False)
    return seen


@pytest.mark.parametrize("outcome", [True, False, RuntimeError("no compiler found")])
def test_it_may_wait_for_the_device_where_waiting_is_an_error(
    outcome: bool | Exception, modes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is an error again afterwards."""

    def passes(_device: torch.device, _copy: Any) -> bool:
        assert modes == [2, 0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(trial, "passes", passes)
    reason = {True: "", False: "a trial came out wrong"}.get(outcome, str(outcome))
    assert cuda.why_not.__wrapped__(GPU) == reason
    assert modes == [2, 0, 2]


def test_trials_of_two_threads_leave_the_mode_as_it_was(
    modes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, end = threading.Event(), threading.Event()

    def passes(_device: torch.device, _copy: Any) -> bool:
        begun.set()
        return end.wait(10)

    def both() -> None:
        assert cuda.why_not.__wrapped__(GPU) == ""

    monkeypatch.setattr(trial, "passes", passes)
    threads = [threading.Thread(target=both) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    threads[1].join(0.05)  # it has met the first one, or would have
    end.set()
    for thread in threads:
        thread.join()
    assert modes == [2, 0, 2, 0, 2]


def test_without_a_gpu_there_is_no_mode_to_set(
    modes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "passes", lambda _device, _copy: True)
    assert cuda.why_not.__wrapped__(torch.device("cpu")) == ""
    assert modes == [2]
