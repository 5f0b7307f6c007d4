"""The chunks of a zarr array: how large they are, how many there are, and their names."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from xlayout.port.formats.base import Bounds, TensorSpec

__all__ = ["chunk_count", "chunk_keys", "chunk_shape", "stored_bytes"]

_CHUNK = 32 << 20  # bytes; a write holds about two chunks


def chunk_shape(extent: tuple[int, ...], itemsize: int, /) -> tuple[int, ...]:
    """Return the chunk shape for regions of an extent: an even part of it, of at most 32 MiB.

    An axis that has no even parts of about the right size is left whole. Even parts never extend
    further over the edge of a tensor than whole extents would.

    >>> chunk_shape((4096, 1, 14336), 4)
    (512, 1, 14336)
    """
    chunk = list(extent)
    for axis, size in enumerate(extent):
        most = max(_CHUNK // (math.prod(chunk) // size * itemsize), 1)
        part = next(n for n in range(min(size, most), 0, -1) if size % n == 0)
        chunk[axis] = part if 4 * part >= min(size, most) else size
    return tuple(chunk)


def stored_bytes(spec: TensorSpec, extent: tuple[int, ...], /) -> int:
    """Return the bytes that the chunks of a tensor take if it is written in regions of an extent.

    A chunk that extends over the edge of the tensor is stored whole.

    >>> stored_bytes(TensorSpec("int8", (9, 7)), (4, 7))
    84
    """
    chunk = chunk_shape(extent, spec.itemsize)
    return chunk_count(spec.shape, chunk) * TensorSpec(spec.dtype, chunk).nbytes


def chunk_count(shape: tuple[int, ...], chunk: tuple[int, ...], /) -> int:
    """Return how many chunks a tensor has."""
    return math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))


def chunk_keys(box: Bounds, chunk: tuple[int, ...], /) -> Iterator[str]:
    """Yield the names, in the array's store, of the chunks that make up a box.

    >>> list(chunk_keys(((4, 7), (0, 2)), (2, 2)))
    ['c/2/0', 'c/3/0']
    """
    spans = (range(start // c, -(-stop // c)) for (start, stop), c in zip(box, chunk, strict=True))
    for index in product(*spans):
        yield "/".join(("c", *map(str, index)))
