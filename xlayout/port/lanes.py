"""Jobs done concurrently, each with its own memory, so that one can read while another writes.

Reading, moving, checksums and writing all release the GIL, so threads are enough.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
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
    """Return how many jobs to run at a time, if each needs this many bytes.

    That is one more than there are processors, because some job is always waiting for the disk.

    >>> 1 < lanes_for(100, 10_000) <= LANES, lanes_for(100, 250), lanes_for(100, 50)
    (True, 2, 1)
    """
    processors = len(os.sched_getaffinity(0))
    return max(1, min(LANES, processors + 1, max_ram // max(need, 1)))


def side_by_side(
    jobs: Iterable[_Job[T]], each: Callable[[T], object], /, *, lanes: int, nbytes: int
) -> None:
    """Run jobs in threads, and call `each` in this thread with the result of every job.

    If a job or `each` raises, or this is interrupted, no further job is started, and the error is
    raised after those in progress have finished, however often it is interrupted meanwhile: the
    caller then closes the files, and another file could get the number of one that a job writes to.

    Args:
        jobs: The jobs, in the order in which they start.
        each: Called with each result.
        lanes: How many run at a time.
        nbytes: The memory of each lane.

    Raises:
        OSError: No thread can be started for a lane.
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

        try:
            for job in jobs:
                finish(all_but=lanes - 1)
                # In the caller's context, which holds the switch of the copy kernel.
                context = copy_context()
                try:
                    going.add(pool.submit(context.run, run, job))
                except RuntimeError as error:  # of the thread: the work raises in its future
                    pool.shutdown(wait=False, cancel_futures=True)
                    text = f"{error}, {len(going)} of {lanes} run"
                    helps = "wanted a higher limit (ulimit -u or -v)"
                    raise OSError(errno.EAGAIN, f"{text}; {helps}") from error
            finish(all_but=0)
        finally:
            while busy := [future for future in going if not future.done()]:
                with suppress(KeyboardInterrupt):
                    wait(busy)
