"""Memory that torch was lent on a GPU is held until the work that was queued at the end is done."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import pytest
import torch

from xlayout_torch import lent


class Event:
    """An event that occurs when told to."""

    made: list[Event]

    def __init__(self) -> None:
        self.come = threading.Event()
        self.recorded: Any = None
        self.made.append(self)

    def record(self, stream: Any) -> None:
        self.recorded = stream

    def query(self) -> bool:
        return self.come.is_set()

    def synchronize(self) -> None:
        self.come.wait()


class Done(Event):
    """An event that has already occurred."""

    def query(self) -> bool:
        return True


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The events recorded on a GPU that does not exist."""
    Event.made = []
    cuda: Any = torch.cuda
    monkeypatch.setattr(cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(cuda, "current_stream", lambda device: f"the stream of {device}")
    monkeypatch.setattr(cuda, "Event", Event)
    return Event.made


def lend() -> tuple[lent.Lent, Any]:
    """An owner of some memory, and a weak reference to it."""
    x = torch.arange(6.0)
    return lent.Lent(x), weakref.ref(x)


def wait_until_gone(memory: Any) -> bool:
    end = time.monotonic() + 10
    while memory() is not None and time.monotonic() < end:
        time.sleep(0.01)
    return memory() is None


def test_torch_is_told_where_the_memory_is(events: list[Event]) -> None:
    x = torch.arange(6.0)
    told = lent.Lent(x).__cuda_array_interface__
    assert told["data"] == (x.data_ptr(), False)
    assert (told["shape"], told["typestr"], told["strides"]) == ((24,), "|u1", None)
    events[0].come.set()


def test_memory_is_held_until_queued_work_is_done(events: list[Event]) -> None:
    holder, memory = lend()
    assert not events
    del holder
    (event,) = events
    assert event.recorded == "the stream of cpu"
    gc.collect()
    time.sleep(0.05)
    assert memory() is not None
    event.come.set()
    assert wait_until_gone(memory)


def test_nothing_is_held_where_nothing_is_queued(
    events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda: Any = torch.cuda
    monkeypatch.setattr(cuda, "Event", Done)
    holder, memory = lend()
    del holder
    assert len(events) == 1
    assert memory() is None


def test_a_capture_is_not_disturbed(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    holder, memory = lend()
    del holder
    assert not events
    assert memory() is None


def test_one_thread_gives_everything_back(events: list[Event]) -> None:
    held = [lend() for _ in range(3)]
    memories = [memory for _, memory in held]
    del held
    gc.collect()
    for event in events:
        event.come.set()
    assert all(map(wait_until_gone, memories))
    assert sum(thread.name == "xlayout-lent" for thread in threading.enumerate()) == 1
