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

from xlayout_torch import cuda, launches

KINDS = {1: ctypes.c_uint8, 4: ctypes.c_int32}


def window(address: int, itemsize: int, first: int, loops: Any, side: int) -> np.ndarray:
    """The elements of one side of some loops, in memory that begins at an address."""
    one = np.ctypeslib.as_array((KINDS[itemsize] * 1).from_address(address + first * itemsize))
    return as_strided(one, [loop[0] for loop in loops], [loop[side] * itemsize for loop in loops])


@pytest.mark.parametrize("left_out", [None, *range(5)])
def test_one_move_that_is_not_made_is_enough_to_fail(
    left_out: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(moves: Any, itemsize: int, xs: list[int], ys: list[int], _device: Any) -> bool:
        for source, target, (start, to, loops) in moves:
            if next(numbers) != left_out:
                made = window(xs[source], itemsize, start, loops, 1)
                window(ys[target], itemsize, to, loops, 2)[...] = made
        return True

    numbers = count()
    monkeypatch.setattr(cuda, "copy", copy)
    found = cuda.why_not.__wrapped__(torch.device("cpu"))
    assert found == ("" if left_out is None else "a trial came out wrong")


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

    def trial(_device: torch.device) -> bool:
        assert modes == [2, 0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(cuda, "_trial", trial)
    reason = {True: "", False: "a trial came out wrong"}.get(outcome, str(outcome))
    assert cuda.why_not.__wrapped__(GPU) == reason
    assert modes == [2, 0, 2]


def test_trials_of_two_threads_leave_the_mode_as_it_was(
    modes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, end = threading.Event(), threading.Event()

    def trial(_device: torch.device) -> bool:
        begun.set()
        return end.wait(10)

    def both() -> None:
        assert cuda.why_not.__wrapped__(GPU) == ""

    monkeypatch.setattr(cuda, "_trial", trial)
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
    monkeypatch.setattr(cuda, "_trial", lambda _device: True)
    assert cuda.why_not.__wrapped__(torch.device("cpu")) == ""
    assert modes == [2]
