"""Lent: another framework's memory on a GPU, which it gets back when torch's kernels have read it.

By DLPack it gets it back with the last tensor that has it. Kernels that are queued by then read it
later, and may find there what the other framework has written since: it knows nothing of torch's
streams. As torch does with memory of its own, the stream that is current at the end counts.
"""

from __future__ import annotations

import sys
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch

__all__ = ["Lent", "guarded"]

_waiting: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
"""(event, tensor): what is given back after the event. A destructor may put something here."""


class Lent:
    """What holds a tensor's memory: it is let go of when the work that was queued by then is done.

    torch asks it where the memory is, and keeps it as long as a tensor has that.
    """

    def __init__(self, held: torch.Tensor) -> None:
        self._held = held
        self.__cuda_array_interface__ = {
            "shape": (held.nbytes,),
            "typestr": "|u1",
            "data": (held.data_ptr(), False),
            "strides": None,
            "version": 2,
        }

    def __del__(self) -> None:
        if sys.is_finalizing() or torch.cuda.is_current_stream_capturing():
            return  # a graph reads it later, whatever is waited for now
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._held.device))
        if not event.query():
            _waiting.put((event, self._held))
            _start()


def guarded(x: torch.Tensor) -> torch.Tensor:
    """A dense tensor on the memory of `x`, which is not let go of under torch's kernels."""
    storage = torch.as_tensor(Lent(x), device=x.device).untyped_storage()
    made = torch.empty(0, dtype=x.dtype, device=x.device)
    return made.set_(storage, 0, x.shape, x.stride())


@cache
def _start() -> None:
    Thread(target=_give_back, name="xlayout-lent", daemon=True).start()


def _give_back() -> None:
    while True:
        event, held = _waiting.get()
        event.synchronize()
        del event, held
