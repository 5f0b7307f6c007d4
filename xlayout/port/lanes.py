"""Jobs done side by side, each in memory of its own, so that one can read while another writes.

Reading, laying out, summing and writing all release Python's lock, so threads are enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from queue import SimpleQueue
from typing import TypeAlias, TypeVar

from xlayout.port.move import Buffers

__all__ = ["LANES", "lanes_for", "side_by_side"]

LANES = 8
"""The most jobs at a time; each takes memory."""

T = TypeVar("T")
_Job: TypeAlias = Callable[[Buffers], T]


def lanes_for(need: int, max_ram: int, /) -> int:
    """Return how many jobs are best done at a time, if each needs so many bytes.

    That is one more than there are processors, because some job is always waiting for a disk.

    >>> 1 < lanes_for(100, 10_000) <= LANES, lanes_for(100, 250), lanes_for(100, 50)
    (True, 2, 1)
    """
    processors = len(os.sched_getaffinity(0))
    return max(1, min(LANES, processors + 1, max_ram // max(need, 1)))


def side_by_side(
    jobs: Iterable[_Job[T]], each: Callable[[T], object], /, *, lanes: int, nbytes: int
) -> None:
    """Do jobs, and call `each`, in this thread, with the result of every one that has ended.

    If a job or `each` raises, or this is interrupted, no further job is started; those in progress
    are finished first, and then the error is raised.

    Args:
        jobs: The jobs, in the order in which they begin.
        each: Called with each result.
        lanes: How many are done at a time.
        nbytes: The memory of each lane.
    """
    free: SimpleQueue[Buffers] = SimpleQueue()
    for _ in range(lanes):
        free.put(Buffers(nbytes))

    def run(job: _Job[T]) -> T:
        buffers = free.get()
        try:
            return job(buffers)
        finally:
            free.put(buffers)

    with ThreadPoolExecutor(lanes, "port") as pool:
        going: set[Future[T]] = set()

        def finish(*, all_but: int) -> None:
            while len(going) > all_but:
                for ended in wait(going, return_when=FIRST_COMPLETED).done:
                    going.remove(ended)
                    each(ended.result())

        for job in jobs:
            finish(all_but=lanes - 1)
            # In the caller's context, which says whether the copy kernel is wanted.
            going.add(pool.submit(copy_context().run, run, job))
        finish(all_but=0)
