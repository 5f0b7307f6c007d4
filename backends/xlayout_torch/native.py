"""Native: copies by the compiled kernel in place of torch's, if it is faster and nobody looks on.

A raw copy that autograd, a transform, a tracer or a mode does not see gives silently wrong results.
Each of them is a gate; if one is closed, torch makes the copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

import xlayout_native
from xlayout_native.strided import (
    LARGE,
    PIECE,
    SMALL,
    Moves,
    plan_to_copy,
    plan_where_faster,
    prepared,
)
from xlayout_native.switch import wanted
from xlayout_torch import memory

__all__ = ["GATES", "empty", "fresh", "in_place", "move", "rivals"]

if xlayout_native.available:
    xlayout_native.share_threads()

_home = True
"""Whether this process has the threads that torch started: a fork has none of them."""


def _leave_home() -> None:
    global _home
    _home = False


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_leave_home)

GATES: dict[str, Callable[[Any], bool]] = memory.GATES | {
    "device": lambda x: x.device.type != "cpu",
    "autograd": lambda x: x.requires_grad and torch.is_grad_enabled(),
}
"""Name -> whether it keeps the kernel away from a tensor."""


def rivals() -> bool:
    """Whether torch's threads, which are awake, are out of the kernel's reach here."""
    if not xlayout_native.available:
        return True
    return _home and not xlayout_native.threads_awake() and torch.get_num_threads() > 1


def fresh(x: Any) -> Any | None:
    """A row-major copy of a tensor, or None where torch should make it."""
    if not xlayout_native.available or x.numel() * x.itemsize < SMALL or _is_closed(x):
        return None
    plan = plan_to_copy(x.shape, x.stride(), x.itemsize, rivals())
    if plan is None:
        return None
    y = empty(x.shape, x)
    xlayout_native.run(plan, torch.get_num_threads(), x.data_ptr(), y.data_ptr())
    return y


def empty(shape: Sequence[int], like: Any, together: int = 0) -> Any:
    """Memory not yet written; on huge pages where there is much of it.

    `together`: bytes of all that a call makes, where it makes several.
    """
    y = like.new_empty(shape)
    large = y.nbytes >= LARGE or (together >= LARGE and y.nbytes >= PIECE)
    if large and xlayout_native.available and y.device.type == "cpu":
        xlayout_native.huge_pages(y.data_ptr(), y.nbytes)
    return y


def move(moves: Moves, arrays: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether all moves are made, between tensors of one dtype; if not, torch should make them."""
    plan = plan_where_faster(moves, arrays[0].itemsize, len(arrays), len(outputs), rivals())
    if plan is None or any(map(_is_closed, (*arrays, *outputs))):
        return False
    pointers = [x.data_ptr() for x in (*arrays, *outputs)]
    memory.count_write(outputs)  # first: as the write ends, a handler of signals may raise
    xlayout_native.run(plan, torch.get_num_threads(), *pointers)
    return True


def in_place(moves: Moves, x: Any, shape: tuple[int, ...]) -> Any | None:
    """A tensor that is alone on its storage, permuted there; None, and no change, for any other.

    It holds other elements than before; `release` tells autograd of the write.
    """
    if not wanted() or _is_closed(x) or not x.is_contiguous():
        return None
    storage = x.untyped_storage()
    # Not memory of numpy, of JAX, or that other processes see.
    owned = storage.resizable() and not storage.is_shared()
    if not owned or storage.nbytes() != x.nbytes:
        return None
    plan = prepared(moves, x.itemsize, 1, 1)
    threads = torch.get_num_threads()
    if plan is None or not xlayout_native.run_in_place(plan, threads, x.data_ptr()):
        return None
    return x.new_empty(0).set_(storage, 0, shape)  # no view: one made without gradients stays so


def _is_closed(x: Any) -> bool:
    return memory.any_closed(GATES, x)
