"""Contest: one op on one framework's arrays, as the calls that a race is held between.

A call is named by its form and by where its result goes: "xlayout reused" writes into an array that
was there (`out=`), "xlayout fresh" makes a new one. The forms: xlayout; eager, the framework's own
words; compiled, the same under `torch.compile` or `jax.jit`; einops; and "xlayout compiled", the op
inside such a program. Every framework's arrays lie in memory as that framework allocates it, and
the memcpys go from the input to the array that is reused, so over the same kind of pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

import xlayout_native
from xlayout.bench.timing import Call

__all__ = ["NAMES", "Contest", "arrays_of", "memcpys", "parts_of"]

NAMES = (
    "xlayout reused",
    "eager reused",
    "compiled reused",
    "xlayout fresh",
    "eager fresh",
    "compiled fresh",
    "einops fresh",
    "xlayout compiled",
)
"""Every call there may be, in the order of the table's columns."""


def _bytes(x: Any) -> NDArray[np.uint8]:
    return np.asarray(x).reshape(-1).view(np.uint8)


@dataclass(frozen=True, slots=True)
class Contest:
    """The calls of one op on one framework's arrays.

    Args:
        calls: by name, of `NAMES`.
        units: the memcpys of the same bytes.
        finish: waits until a result is there.
        clear: wipes the reused array, so that an old answer cannot pass for a new one.
        as_bytes: gives an array as flat bytes.
    """

    calls: Mapping[str, Call]
    units: Mapping[str, Call]
    finish: Callable[[Any], object] = lambda _made: None
    clear: Callable[[], object] = lambda: None
    as_bytes: Callable[[Any], NDArray[np.uint8]] = _bytes

    def seen(self, made: Any) -> Iterator[NDArray[np.uint8]]:
        """The arrays of a result as flat bytes."""
        return map(self.as_bytes, arrays_of(made))


def arrays_of(result: Any) -> Iterator[Any]:
    """The arrays of a result, which may be nested lists of them, in order."""
    if isinstance(result, (list, tuple)):
        for part in result:
            yield from arrays_of(part)
    else:
        yield result


def parts_of(flat: Any, shapes: Iterable[tuple[int, ...]]) -> list[Any]:
    """A flat array split into consecutive views of these shapes."""
    views, at = [], 0
    for shape in shapes:
        size = math.prod(shape)
        views.append(flat[at : at + size].reshape(shape))
        at += size
    return views


def memcpys(source: NDArray[np.uint8], target: NDArray[np.uint8], threads: int) -> dict[str, Call]:
    """The two fastest ways to copy bytes: torch's `copy_`, and the kernel's with streaming stores.

    If neither is installed, numpy's. If one side is longer, what is left of it is not copied.
    """
    size = min(source.size, target.size)
    source, target = source[:size], target[:size]
    calls: dict[str, Call] = {}
    if find_spec("torch"):
        import torch

        x, y = torch.from_numpy(source), torch.from_numpy(target)
        calls["copy_"] = lambda: y.copy_(x)
    if xlayout_native.available:
        plan = xlayout_native.prepare([(0, 0, (0, 0, ((source.size, 1, 1),)))], 1, 1, 1)
        pointers = source.ctypes.data, target.ctypes.data

        # The call has only the addresses of the arrays, so it holds on to both.
        def streamed(_held: object = (source, target)) -> None:
            xlayout_native.run(plan, threads, *pointers)

        calls["streamed"] = streamed
    return calls or {"copyto": lambda: np.copyto(target, source)}
