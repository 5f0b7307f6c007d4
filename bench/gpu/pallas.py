"""Pallas: what a layout on a GPU would be as a hand-written kernel in JAX, where tiles fit evenly.

It is a contender, not part of the library: only hardware can say whether it beats what XLA makes of
the same op. It is lowered by Triton, whose tiles go through shared memory as in the kernel for
torch.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

__all__ = ["transpose", "turn_rows"]

_PARAMETERS = plt.CompilerParams(num_warps=4, num_stages=1)
_TILE = 1 << 14  # bytes


def transpose(x: Any, *, interpret: bool = False) -> Any:
    """The last two axes swapped, in tiles whose sides divide both sizes."""
    *batch, rows, columns = x.shape
    down, across = _sides(rows, columns, _TILE // x.dtype.itemsize)
    kept = (None,) * len(batch)

    def source(*at: Any) -> Any:
        return at

    def target(*at: Any) -> Any:
        return (*at[:-2], at[-1], at[-2])

    def kernel(read: Any, write: Any) -> None:
        write[...] = read[...].T

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((*batch, columns, rows), x.dtype),
        grid=(*batch, rows // down, columns // across),
        in_specs=[pl.BlockSpec((*kept, down, across), source)],
        out_specs=pl.BlockSpec((*kept, across, down), target),
        compiler_params=_PARAMETERS,
        interpret=interpret,
    )(x)


def turn_rows(x: Any, split: tuple[int, int], *, interpret: bool = False) -> Any:
    """Each row of a matrix seen as a small matrix, which is transposed: a zip or an unzip."""
    rows, columns = x.shape
    tall = max(1, _TILE // x.dtype.itemsize // columns)

    def kernel(read: Any, write: Any) -> None:
        values = read[...].reshape(tall, *split).transpose(0, 2, 1)
        write[...] = values.reshape(tall, columns)

    block = pl.BlockSpec((tall, columns), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(rows // tall,),
        in_specs=[block],
        out_specs=block,
        compiler_params=_PARAMETERS,
        interpret=interpret,
    )(x)


def _sides(rows: int, columns: int, room: int) -> tuple[int, int]:
    """Powers of two that divide the sizes, as equal as possible, their product at most `room`."""
    down, across = rows & -rows, columns & -columns
    while down * across > room:
        if down >= across:
            down //= 2
        else:
            across //= 2
    return down, across
