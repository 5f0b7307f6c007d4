"""Timing: calls that take turns, in units of the fastest memcpy of the same round.

A machine has slow moments. Within a round every call and every memcpy is timed once, in an order
that changes from round to round, so that such a moment is as likely to hit one as another. What is
kept of each call is its time divided by the fastest memcpy's, as the median over the rounds. A
result is released after the clock has stopped.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any, TypeAlias

__all__ = ["Call", "Timed", "clock_of", "race", "spread_of"]

Call: TypeAlias = Callable[[], Any]

READING = 2e-4
"""Seconds that one reading of the clock should last: shorter calls are made several times."""

LEAST = 3
"""Rounds that every call takes part in: a median of fewer would follow one slow moment."""


@dataclass(frozen=True, slots=True)
class Timed:
    """The figures of one call over all rounds.

    Args:
        ratio: median over the rounds, in memcpys.
        spread: half the distance between the quartiles of the same.
        seconds: median time of one call.
        rounds: how many there were.
    """

    ratio: float
    spread: float
    seconds: float
    rounds: int


def clock_of(threads: int) -> Callable[[], float]:
    """The wall clock; with one thread the processor's, which other work hardly affects."""
    return process_time if threads == 1 else perf_counter


def race(
    calls: Mapping[str, Call],
    units: Mapping[str, Call],
    *,
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = perf_counter,
    finish: Callable[[Any], object] = lambda _made: None,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> tuple[dict[str, Timed], float]:
    """Every call's time in units of the fastest of `units`, and the unit in seconds.

    Args:
        calls: what to time; each has been called before.
        units: the memcpys; they take part in every round.
        rounds: the most a call takes part in; at least 3.
        seconds: a call that has taken this long in all drops out, though not before 3 rounds.
        clock: what to time with.
        finish: waits until a result is there.
        around: makes a context for each reading, entered and left while the clock is not running.

    >>> found, unit = race({"same": list}, {"unit": list}, rounds=5, seconds=1)
    >>> found["same"].rounds, unit > 0
    (5, True)
    """

    def timed(call: Call, count: int) -> float:
        made = None
        start = clock()
        for _ in range(count):
            made = call()
        finish(made)
        return (clock() - start) / count

    def reading(call: Call, count: int) -> float:
        with around():
            return timed(call, count)  # returning releases the result, still inside the context

    everyone = {("unit", name): call for name, call in units.items()}
    everyone |= {("call", name): call for name, call in calls.items()}
    order = random.Random(0)
    with _no_collections():
        names = order.sample([*everyone], len(everyone))
        first = {who: max(reading(everyone[who], 1), 1e-7) for who in names}
        counts = {who: math.ceil(READING / t) for who, t in first.items()}
        long = max(counts.values()) == 1  # then the first readings count as well
        readings = {who: [t] if long else [] for who, t in first.items()}

        def goes_on(who: tuple[str, str], number: int) -> bool:
            spent = sum(readings[who]) * counts[who]
            return number < LEAST or (number < rounds and spent < seconds)

        for number in range(long, max(rounds, LEAST)):
            running = [("call", name) for name in calls if goes_on(("call", name), number)]
            if not running:
                break
            running += [("unit", name) for name in units]
            order.shuffle(running)
            for who in running:
                readings[who].append(reading(everyone[who], counts[who]))
    fastest = [
        min(times) for times in zip(*(readings["unit", name] for name in units), strict=True)
    ]
    found = {name: _timed(readings["call", name], fastest) for name in calls}
    return found, statistics.median(fastest)


def _timed(readings: list[float], units: list[float]) -> Timed:
    ratios = [t / unit for t, unit in zip(readings, units, strict=False)]
    return Timed(
        statistics.median(ratios), spread_of(ratios), statistics.median(readings), len(ratios)
    )


def spread_of(values: list[float]) -> float:
    """Half the distance between the quartiles.

    >>> spread_of([1.0, 2.0, 3.0, 4.0, 100.0])
    1.0
    >>> spread_of([5.0])
    0.0
    """
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 2


@contextmanager
def _no_collections() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
