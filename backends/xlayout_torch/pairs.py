"""Pairs: messages between two ranks each, over gloo; a rank that does not answer is named.

A collective that fails says that somebody is gone. With a message for every two ranks it is known
who: one that died has closed its connection, and one that went elsewhere sends nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_TAG = 0x786C  # apart from messages of the program itself
_GRACE = 2.0  # seconds for the others, once one is known to be gone


def swap(
    outgoing: Mapping[int, torch.Tensor], incoming: Mapping[int, torch.Tensor], group: Any
) -> None:
    """Send to and receive from some ranks, and return when all is there."""
    silent: dict[int, RuntimeError] = {}
    works, answered = [], set()
    for call, parts in ((group.recv, incoming), (group.send, outgoing)):
        for rank, part in parts.items():
            if part.numel():
                try:
                    works.append((rank, call([part], dist.get_group_rank(group, rank), _TAG)))
                except RuntimeError as error:  # its connection is closed already
                    silent[rank] = error
    limit = group._get_backend(torch.device("cpu")).options._timeout
    last = end = time.monotonic() + limit.total_seconds()
    for rank, work in works:
        if silent:
            end = min(end, time.monotonic() + _GRACE)
        try:
            work.wait(timedelta(seconds=max(end - time.monotonic(), 0.001)))
            answered.add(rank)
        except RuntimeError as error:
            if end == last or time.monotonic() < end:  # else nobody knows: it was cut short
                silent.setdefault(rank, error)
    if silent:
        raise _not_there(silent, answered - silent.keys(), limit) from next(iter(silent.values()))


def _not_there(
    silent: Mapping[int, RuntimeError], answered: set[int], limit: timedelta
) -> TimeoutError:
    """Who does not answer, in the transport's words, and what to do."""
    said = "; ".join(f"rank {rank}: {_words(error)}" for rank, error in sorted(silent.items()))
    others = f", {_ranks(answered)} did" if answered else ""
    return TimeoutError(
        f"{_ranks(silent)} did not answer{others} ({said}). It has died, or is not at this "
        "exchange; its log says more. How long is waited is the timeout of its process group, "
        f"{limit.total_seconds():g} s (torch.distributed.init_process_group(timeout=...))"
    )


def _ranks(ranks: Any) -> str:
    listed = ", ".join(map(str, sorted(ranks)))
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"


def _words(error: RuntimeError) -> str:
    """What gloo says, without where in its sources it says it."""
    return str(error).split("] ", 1)[-1].partition(". ")[0]
