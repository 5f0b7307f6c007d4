"""Regather: autograd saves a rank's part of a gathered parameter; the backward pass gathers again.

A matrix product saves its operands for the gradient, including gathered weights, so the whole
weights of all layers would be in memory at the end of the forward pass. Only hooks on saved tensors
can avoid that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef

from xlayout.registry import backend_module

__all__ = ["regather"]


class _Writes:
    """Detects writes into a DTensor from now on, without keeping its memory alive.

    The DTensor and its local tensor have separate version counters; detached tensors share them.
    """

    def __init__(self, x: DTensor) -> None:
        whole: Any = x.detach()
        local = x._local_tensor.detach()
        local.data = local.new_empty(0)
        whole._local_tensor = local
        self._counters = whole, local
        self._before = self._versions()

    def _versions(self) -> list[int]:
        return [counter._version for counter in self._counters]

    def __bool__(self) -> bool:
        return self._versions() != self._before


@dataclass(slots=True)
class _Whole:
    """How to gather a tensor again; the last gathered storage is reused while it is alive."""

    again: Callable[[], torch.Tensor]
    writes: _Writes
    part_writes: _Writes
    last: Any = None

    def __call__(self) -> torch.UntypedStorage:
        if self.part_writes:
            raise RuntimeError(
                "regather: a part was written into between its gather and the backward pass, which "
                "would gather other elements; run the backward pass first, or gather it outside"
            )
        storage = None if self.last is None else torch.UntypedStorage._new_with_weak_ptr(
            self.last.cdata)  # fmt: skip
        if storage is None:
            storage = self.again().untyped_storage()
            self.last = _reference(storage)
        return storage


def _reference(storage: torch.UntypedStorage) -> Any:
    """A key that is unique to a storage while the key is alive."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class _View:
    """A saved view of a gathered tensor, or a DTensor whose local tensor is one."""

    whole: _Whole
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    lazy: tuple[Callable[[torch.Tensor], torch.Tensor], ...]
    like: Any

    def __call__(self) -> Any:
        storage = self.whole()
        empty = torch.empty(0, dtype=self.dtype, device=storage.device)
        local = empty.set_(storage, self.offset, self.shape, self.strides)
        for apply in self.lazy:
            local = apply(local)
        if self.like is None:
            return local
        mesh, placements, shape, stride = self.like
        return DTensor.from_local(
            local, mesh, placements, run_check=False, shape=shape, stride=stride
        )


class regather(torch.autograd.graph.saved_tensors_hooks):  # noqa: N801 -- a context, as torch's are
    """Inside this context, results of `xlayout.all_gather` are not saved for the backward pass.

    Only this rank's part is saved, and the backward pass gathers it again: one more gather saves
    the memory of the full array. All ranks must run the same backward pass. This is for eager mode;
    `torch.compile` always does it.

    >>> import torch
    >>> layer = torch.nn.Linear(2, 2)
    >>> with regather():
    ...     loss = layer(torch.ones(1, 2)).sum()
    >>> loss.backward()
    """

    def __init__(self) -> None:
        self._wholes: dict[Any, _Whole] = {}
        super().__init__(self._pack, lambda saved: saved() if type(saved) is _View else saved)

    def __enter__(self) -> None:
        super().__enter__()  # may refuse; then nobody would take the listener away again
        backend_module("torch", "collective").LISTENERS.append(self._made)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        backend_module("torch", "collective").LISTENERS.remove(self._made)
        self._wholes.clear()

    def _made(self, whole: DTensor, part: DTensor, gather: Callable[[Any], torch.Tensor]) -> None:
        if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
            return  # autograd saves nothing then
        self._wholes = {ref: w for ref, w in self._wholes.items() if not ref.expired()}
        storage, again = whole._local_tensor.untyped_storage(), partial(gather, part.detach())
        self._wholes[_reference(storage)] = _Whole(again, _Writes(whole), _Writes(part))

    def _pack(self, x: Any) -> Any:
        local: Any = x._local_tensor if isinstance(x, DTensor) else x
        if local.layout is not torch.strided or not self._wholes:
            return x
        whole = self._wholes.get(_reference(local.untyped_storage()))
        if whole is None or whole.writes or whole.part_writes:
            return x
        like = (x.device_mesh, x.placements, x.shape, x.stride()) if x is not local else None
        shape, strides = tuple(local.shape), tuple(local.stride())
        marked = (torch.conj, local.is_conj()), (torch._neg_view, local.is_neg())
        lazy = tuple(apply for apply, is_marked in marked if is_marked)
        return _View(whole, local.dtype, shape, strides, local.storage_offset(), lazy, like)
