"""Writer: a layout between row-major tensors along the shortest way that is known for its size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

import xlayout_native
from xlayout_native.strided import ONE_CALL, Moves, meets, plan_to_write
from xlayout_native.switch import wanted
from xlayout_torch import native
from xlayout_torch.memory import DTYPES, addresses_of, count_write, sealed, watched

__all__ = ["copy_by_torch", "writer"]


def writer(
    moves: Moves, inputs: int, shapes: Sequence[tuple[int, ...]], /
) -> Callable[[Sequence[Any], Sequence[Any] | None], Sequence[Any] | None]:
    count = sum(map(math.prod, shapes))
    plans = lru_cache(lambda size, rivals: plan_to_write(moves, size, inputs, shapes, rivals))

    def write(arrays: Sequence[Any], outputs: Sequence[Any] | None) -> Sequence[Any] | None:
        dtype = arrays[0].dtype
        if dtype not in DTYPES or watched() or not wanted():
            return None
        size = count * dtype.itemsize
        read = addresses_of(arrays)
        if read is None:
            return None
        fresh = outputs is None
        if outputs is None:
            outputs = [native.empty(shape, arrays[0], size) for shape in shapes]
        written = addresses_of(outputs)
        if written is None or not (fresh or fits(arrays, read, outputs, written)):
            return None
        rivals = size > ONE_CALL and native.rivals()  # what is small is for one thread
        found = plans(dtype.itemsize, rivals)
        if found is None:
            copy_by_torch(moves, arrays, outputs)
            return outputs
        plan, threads = found
        xlayout_native.run(plan, threads or torch.get_num_threads(), *read, *written)
        if not fresh:
            count_write(*outputs)
        return outputs

    def fits(
        arrays: Sequence[Any], read: list[int], outputs: Sequence[Any], written: list[int]
    ) -> bool:
        if len(outputs) != len(shapes):
            return False
        try:
            for y, shape in zip(outputs, shapes, strict=True):
                if y.dtype is not arrays[0].dtype or y.shape != shape:
                    return False
                if y.requires_grad or sealed(y):
                    return False
        except RuntimeError:  # what is nested has many shapes
            return False
        sizes = [x.nbytes for x in (*arrays, *outputs)]
        return not meets((*read, *written), sizes, inputs)

    return write


def copy_by_torch(moves: Moves, arrays: Sequence[Any], outputs: Sequence[Any]) -> None:
    """All moves between row-major tensors, by copies of torch's own."""
    for source, target, (first, to, loops) in moves:
        x, y, shape = arrays[source], outputs[target], [n for n, _, _ in loops]
        here, there = x.storage_offset() + first, y.storage_offset() + to
        window = y.as_strided(shape, [s for _, _, s in loops], there)
        window.copy_(x.as_strided(shape, [s for _, s, _ in loops], here))
