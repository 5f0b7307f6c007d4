"""Arrays of random bits, and what it means for two to be the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from xlayout.port.formats import TensorSpec, create_sink, numpy_dtype
from xlayout.port.formats.base import DTYPES

__all__ = ["Array", "bits", "everything", "same", "save"]

Array = np.ndarray[Any, np.dtype[Any]]


def bits(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Return an array of uniformly random bit patterns, NaN payloads included."""
    raw = np.random.default_rng(seed).integers(0, 256, TensorSpec(dtype, shape).nbytes, np.uint8)
    raw = raw & 1 if dtype == "bool" else raw
    return raw.view(numpy_dtype(dtype)).reshape(shape)


def everything(dtypes: Iterable[str] = DTYPES) -> dict[str, Array]:
    """Return an array of each dtype in every shape, by a name of its own."""
    shapes = [(), (1,), (0,), (3, 0, 2), (5,), (4, 3), (2, 3, 4)]
    pairs = itertools.product(dtypes, shapes)
    return {f"{d}/{i}": bits(d, s, i) for i, (d, s) in enumerate(pairs)}


def same(a: Array, b: Array) -> bool:
    """Return whether dtype, shape and every bit are the same."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def save(path: Path, format_: str, arrays: dict[str, Array], **options: Any) -> None:
    """Write whole arrays as a checkpoint."""
    specs = {name: TensorSpec(str(a.dtype), a.shape) for name, a in arrays.items()}
    with create_sink(path, format_, specs, **options) as sink:
        for name, array in arrays.items():
            sink.write(name, array)
        sink.commit()
