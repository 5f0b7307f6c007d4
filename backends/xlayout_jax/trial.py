"""Trial: what the Triton kernel has to copy right before others of its kind are left to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from xlayout_jax.primitive import relayout_p
from xlayout_triton.plan import Moves
from xlayout_triton.words import TRIED, VECTORS

__all__ = ["TRIALS", "Trial", "is_one", "passes"]


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Arrays of matrices, which are transposed and joined; nobody differentiates or maps it.

    Args:
        dtype: of the elements.
        shape: of each array.
        copies: what the kernel has to make.
        out_shapes: the shape of the result.
    """

    dtype: str
    shape: tuple[int, int, int]
    copies: Moves
    out_shapes: tuple[tuple[int, int, int]]

    @classmethod
    def of(cls, dtype: str, count: int, *shape: int) -> Trial:
        """The trial of so many arrays of a shape."""
        n, rows, columns = shape
        size = rows * columns
        loops = (n, size, count * size), (rows, columns, 1), (columns, 1, rows)
        copies = tuple((k, 0, (0, k * size, loops)) for k in range(count))
        return cls(dtype, (n, rows, columns), copies, ((n, count * columns, rows),))

    def moves(self, _strides: Sequence[tuple[int, ...]], /) -> Moves:
        """The copies, of arrays that are row-major."""
        return self.copies

    def plain(self, arrays: Sequence[Any], /) -> list[Any]:
        """What has to come out."""
        return [np.concatenate([x.swapaxes(1, 2) for x in arrays], 1)]


TRIALS = {(VECTORS, 4): Trial.of("uint32", 2, 3, 66, 40)} | {
    (way, unit): Trial.of(f"uint{8 * unit}", 1, 1, *matrix) for (way, unit), matrix in TRIED.items()
}
"""(way, bytes of an element) -> its trial."""


def is_one(moves: Moves) -> bool:
    """Whether these copies are a trial's, not those of a program that makes the same ones."""
    return any(moves is trial.copies for trial in TRIALS.values())


def passes(way: int, unit: int) -> bool:
    """Whether the copies of a trial come out right on the first CUDA device of this process."""
    trial = TRIALS[way, unit]
    count = len(trial.copies)
    values = np.arange(count * np.prod(trial.shape)).astype(trial.dtype)
    given = values.reshape(count, *trial.shape)
    with jax.ensure_compile_time_eval():
        there = jax.device_put((*given,), jax.local_devices(backend="cuda")[0])
        (made,) = relayout_p.bind(*there, linear=trial)
        # Asked for by name: `jax.transfer_guard` may refuse what is not.
        return bool(np.array_equal(jax.device_get(made), trial.plain([*given])[0]))
