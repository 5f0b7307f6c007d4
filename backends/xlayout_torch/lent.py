"""Lent: another framework's memory on a GPU, given back when torch's kernels have read it.

DLPack alone would give it back with the last tensor on it. Kernels that are still queued would read
it later, and might find what the other framework has written since: it knows nothing of torch's
streams. As with torch's own memory, the stream that is current at the end counts.
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
    """Holds memory for a tensor, and lets go of it when the work queued by then is done.

    torch reads the address from it, and keeps it alive as long as a tensor uses the memory.
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
    """A dense tensor on the memory of `x`, which stays until torch's kernels have read it."""
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
