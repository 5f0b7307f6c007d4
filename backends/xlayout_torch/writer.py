"""Writer: a layout between row-major tensors, by the fastest way that is known for its size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

import xlayout_native
from xlayout_native.overlap import meets
from xlayout_native.strided import ONE_CALL, ZEROS, Moves, plan_to_write
from xlayout_native.switch import wanted
from xlayout_torch import cuda, native
from xlayout_torch.memory import WIDTHS, addresses_of, count_write, sealed, watched

__all__ = ["copy_by_torch", "writer"]

_WRITTEN = {**WIDTHS, torch.complex32: 4, torch.complex64: 8, torch.complex128: 16}
"""Dtype -> bytes, of what is written into a caller's tensors: complex ones if none is lazy."""

Shapes = Sequence[tuple[int, ...]]


def writer(
    moves: Moves, sources: Shapes, targets: Shapes, /
) -> Callable[[Sequence[Any], Sequence[Any] | None], Sequence[Any] | None]:
    counts = [math.prod(shape) for shape in (*sources, *targets)]
    inputs = len(sources)
    fills = any(source == inputs for source, _, _ in moves)
    read = inputs + fills
    count = sum(counts[inputs:])
    nbytes = {width: [n * width for n in counts] for width in set(_WRITTEN.values())}
    on_gpu = cuda.writer(moves, count, targets) if read == 1 else None
    plans = lru_cache(lambda size, rivals: plan_to_write(moves, size, read, targets, rivals))

    def write(arrays: Sequence[Any], outputs: Sequence[Any] | None) -> Sequence[Any] | None:
        dtype = arrays[0].dtype
        width = (WIDTHS if outputs is None else _WRITTEN).get(dtype)
        if width is None or watched() or not wanted():
            return None
        if arrays[0].is_cuda:
            return on_gpu(arrays[0]) if on_gpu is not None and outputs is None else None
        addresses = addresses_of(arrays if outputs is None else (*arrays, *outputs))
        if addresses is None:
            return None
        size = count * width
        if outputs is None:
            made: Sequence[Any] = [native.empty(shape, arrays[0], size) for shape in targets]
            addresses += [y.data_ptr() for y in made]
        else:
            made = outputs
            if dtype.is_complex and any(x.is_conj() for x in (*arrays, *outputs)):
                return None
            if not fits(made, dtype) or meets(addresses, nbytes[width], inputs):
                return None
        if fills:
            zeros = torch.zeros(ZEROS, dtype=dtype, device="cpu")  # whatever the default device is
            arrays = (*arrays, zeros)
            addresses.insert(inputs, zeros.data_ptr())
        plan = plans(width, size > ONE_CALL and native.rivals())  # below it makes no difference
        if plan is None:
            copy_by_torch(moves, arrays, made)
            return made
        if outputs is not None:
            count_write(outputs)  # first: as the write ends, a handler of signals may raise
        xlayout_native.run(plan, torch.get_num_threads(), *addresses)
        return made

    shapes = list(targets)

    def fits(outputs: Sequence[Any], dtype: Any) -> bool:
        try:
            if [y.shape for y in outputs] != shapes:
                return False
        except RuntimeError:  # what is nested has many shapes
            return False
        for y in outputs:  # noqa: SIM110 -- a generator takes half as long again
            if y.dtype is not dtype or y.requires_grad or sealed(y):
                return False
        return True

    return write


def copy_by_torch(moves: Moves, arrays: Sequence[Any], outputs: Sequence[Any]) -> None:
    """All moves between row-major tensors, by copies of torch's own."""
    for source, target, (first, to, loops) in moves:
        x, y, shape = arrays[source], outputs[target], [n for n, _, _ in loops]
        here, there = x.storage_offset() + first, y.storage_offset() + to
        window = y.as_strided(shape, [s for _, _, s in loops], there)
        window.copy_(x.as_strided(shape, [s for _, s, _ in loops], here))
