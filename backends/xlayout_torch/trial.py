"""Trial: whether the Triton kernel makes a few copies right on a device, before it makes others.

Copies in words are put together by instructions that no other GPU may have, and for each way and
width there is another kernel. So each is tried by itself, when it is first needed. If one comes out
wrong, torch makes such copies, and the kernel all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

import torch

from xlayout_torch import launches
from xlayout_torch.launches import addresses_of
from xlayout_triton.plan import Moves, Plan
from xlayout_triton.uncompiled import CompileError, reason_of
from xlayout_triton.words import TRIED

__all__ = ["is_right", "passes", "require"]


def passes(device: torch.device) -> bool:
    """Whether copies in vectors come out right."""
    with _waiting(device):
        x = torch.arange(3 * 66 * 80, dtype=torch.int32, device=device).view(3, 66, 80)
        turn = 0, 0, ((3, 66 * 80, 66 * 80), (66, 80, 1), (80, 1, 66))
        join = [(j, 0, (0, 40 * j, ((198, 80, 80), (40, 1, 1)))) for j in range(2)]
        alone = torch.zeros_like(x.mT).contiguous()
        joined, turned = torch.zeros_like(x), torch.zeros_like(alone)
        _copy(((0, 0, turn),), 4, [x], [alone])
        _copy((*join, (0, 1, turn)), 4, [x, x[:, :, 40:]], [joined, turned])
        return all(map(torch.equal, (alone, turned, joined), (x.mT, x.mT, x)))


def require(made: Plan, device: torch.device) -> None:
    """Refuse a plan that moves something in words which come out wrong.

    Raises:
        CompileError: it moves something in such a way, or the trial could not be made.
    """
    for way, unit in made.in_words:
        if not is_right(way, unit, device):
            raise CompileError("a trial of their kind came out wrong")


@lru_cache
def is_right(way: int, unit: int, device: torch.device) -> bool:
    """Whether a way to move elements of so many bytes is right; the first question is a trial."""
    rows, columns = TRIED[way, unit]
    try:
        with _waiting(device):
            count = torch.arange(rows * columns * unit, device=device)
            x = count.to(torch.uint8).view(rows, columns, unit)
            made = torch.zeros_like(x.transpose(0, 1)).contiguous()
            loops = (rows, columns, 1), (columns, 1, rows)
            _copy(((0, 0, (0, 0, loops)),), unit, [x], [made])
            return torch.equal(made, x.transpose(0, 1))
    except CompileError:
        return True  # nor will others of its kind compile, and then a line says why
    except Exception as error:  # memory may be full, for now
        raise CompileError(reason_of(error)) from error


def _copy(moves: Moves, itemsize: int, xs: Sequence[Any], ys: Sequence[Any]) -> None:
    """Make moves without asking whether they come out right."""
    ends = addresses_of(xs), addresses_of(ys)
    launches.copy(moves, itemsize, *ends, ys[0].device)


_one_waits = Lock()


@contextmanager
def _waiting(device: torch.device) -> Iterator[None]:
    """A context for waiting for a device, which `torch.cuda.set_sync_debug_mode` may forbid.

    That mode is the whole process's, so only one thread at a time sets it aside.
    """
    if device.type != "cuda":
        yield
        return
    with _one_waits:
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("default")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)
