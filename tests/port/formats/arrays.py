"""Arrays of random bits, and what it means for two to be the same."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from xlayout.port.formats import TensorSpec, create_sink, numpy_dtype

__all__ = ["Array", "bits", "same", "save", "save_in_regions"]

Array = np.ndarray[Any, np.dtype[Any]]


def bits(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Return an array of uniformly random bit patterns, NaN payloads included."""
    raw = np.random.default_rng(seed).integers(0, 256, TensorSpec(dtype, shape).nbytes, np.uint8)
    raw = raw & 1 if dtype == "bool" else raw
    return raw.view(numpy_dtype(dtype)).reshape(shape)


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


def save_in_regions(path: Path, format_: str, array: Array, data: st.DataObject) -> None:
    """Write an array named "x" in regions that hypothesis cuts, in an order that it draws."""
    cuts = [
        sorted({0, n, data.draw(st.integers(0, n)), data.draw(st.integers(0, n))})
        for n in array.shape
    ]
    boxes = list(
        itertools.product(*[[slice(a, b) for a, b in itertools.pairwise(c)] for c in cuts])
    )
    specs = {"x": TensorSpec(str(array.dtype), array.shape)}
    with create_sink(path, format_, specs) as sink:
        for box in data.draw(st.permutations(boxes)):
            sink.write("x", np.asfortranarray(array[box]), box)
        sink.commit()
