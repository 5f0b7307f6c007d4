"""Timing on a device: calls that take turns, in copies of the same bytes in the same round.

On a GPU a call returns before its work is done, and its host takes longer than a short kernel. So
the device is made to wait while the calls queue up, and then its own clock times them back to back.
What a call costs its host is reported beside that.

The queue of a GPU holds about a thousand launches. A call with more would wait for a device that
itself is made to wait, so there the device starts at once: the time is then that of the whole call,
host included.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xlayout.bench.timing import spread_of

__all__ = ["ROUNDS", "Figure", "figure_of", "race"]

ROUNDS = 5
"""On a device; a CPU is only asked whether the answers are right."""

WAIT = 2e9
"""Cycles of a second, or more: how long the device is to wait is in cycles."""

ENOUGH = 3e-3
"""Seconds of work that one reading of the clock should cover."""


@dataclass(frozen=True, slots=True)
class Figure:
    """The figures of one call over all rounds.

    Args:
        share: median over the rounds of the copy's time over the call's: 1 is as fast as a copy.
        spread: half the distance between the quartiles of the same.
        seconds: median time on the device.
        host: seconds for which a call keeps the host.
    """

    share: float
    spread: float
    seconds: float
    host: float

    def asdict(self) -> dict[str, float]:
        """Rounded, for a file."""
        return {name: float(f"{value:.4g}") for name, value in asdict(self).items()}


def figure_of(copies: Sequence[float], own: Sequence[float], host: float) -> Figure:
    """The figures of a call from its readings and the copy's, both of the same rounds."""
    shares = [base / one for base, one in zip(copies, own, strict=True)]
    return Figure(statistics.median(shares), spread_of(shares), statistics.median(own), host)


def race(
    calls: Mapping[str, Callable[[], Any]],
    copy: Callable[[], Any],
    *,
    cuda: bool,
    many: Container[str] = (),
) -> dict[str, Figure]:
    """Every call and the copy, in turns; `many` names calls of more launches than a queue holds."""
    both = {"copy": copy, **calls}
    read = _on_gpu if cuda else _on_cpu
    hosts = {name: _host(call, cuda=cuda) for name, call in both.items()}
    times = {
        name: 1 if not cuda or name in many else _times(call, hosts[name])
        for name, call in both.items()
    }
    waits = {name: 0.0 if name in many else _wait(times[name], hosts[name]) for name in both}
    seen: dict[str, list[float]] = {name: [] for name in both}
    for _ in range(ROUNDS if cuda else 1):
        for name, call in both.items():
            seen[name].append(read(call, times[name], waits[name]))
    return {name: figure_of(seen["copy"], seen[name], hosts[name]) for name in calls}


def _host(call: Callable[[], Any], *, cuda: bool) -> float:
    """Seconds a call takes to return, after a first one that gets everything ready."""
    _settle(cuda=cuda)
    call()
    _settle(cuda=cuda)
    spent = _on_cpu(call, 3)
    _settle(cuda=cuda)
    return spent


def _times(call: Callable[[], Any], host: float) -> int:
    """How many times to make a call in one reading."""
    return max(3, min(50, int(ENOUGH / _on_gpu(call, 3, _wait(3, host)))))


def _wait(times: int, host: float) -> float:
    """Seconds in which the host is sure to have queued this many calls."""
    return 1e-3 + 1.5 * times * host


def _on_gpu(call: Callable[[], Any], times: int, wait: float) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if wait:
        torch.cuda._sleep(int(wait * WAIT))
    start.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / times


def _on_cpu(call: Callable[[], Any], times: int, _wait: float = 0.0) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def _settle(*, cuda: bool) -> None:
    if cuda:
        import torch

        torch.cuda.synchronize()
