"""What every checkpoint format offers: named tensors that are read and written a region at a time.

A format is two small objects. A `Source` knows names, dtypes and shapes from headers alone and
reads any hyper-rectangle of any tensor; a `Sink` is told up front what it will hold, takes regions
in any order, and becomes visible only when `commit` finds every element written once.
Neither ever holds a whole file in memory.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from xlayout.errors import FormatError, ShapeError

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

__all__ = [
    "DTYPES",
    "Bounds",
    "Region",
    "Sink",
    "Source",
    "TensorSpec",
    "check_out",
    "numpy_dtype",
    "require",
    "resolve",
]

Region: TypeAlias = tuple[slice, ...]
"""One step-1 slice per axis; `()` addresses a 0-d tensor, None stands for the whole tensor."""

Bounds: TypeAlias = tuple[tuple[int, int], ...]
"""A region resolved against a shape: (start, stop) per axis."""

DTYPES: Mapping[str, int] = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
"""Framework-neutral dtype names, and the bytes of one element."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor as its header describes it.

    Args:
        dtype: A name from `DTYPES`, such as "bfloat16".
        shape: The sizes, outermost first; `()` is a scalar.

    Raises:
        FormatError: The dtype is unknown or a size is negative.

    >>> TensorSpec("bfloat16", (4, 3)).nbytes
    24
    """

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise FormatError(f"dtype: {self.dtype!r}; known are {', '.join(DTYPES)}")
        object.__setattr__(self, "shape", tuple(self.shape))
        if any(n < 0 for n in self.shape):
            raise FormatError(f"shape: {self.shape}; every size must be 0 or more")

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.dtype]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.size * self.itemsize

    @property
    def fits(self) -> bool:
        """Whether numpy can hold it: at most 64 axes, and less than 2^63 bytes, ignoring zeros."""
        return len(self.shape) <= 64 and self.itemsize * math.prod(filter(None, self.shape)) < 2**63


class Source(Protocol):
    """A checkpoint opened for reading; as a context manager it closes itself.

    Attributes:
        format: "safetensors", "gguf", "maxtext" or "dcp".
        path: The file or directory that was opened.
        tensors: Every tensor by name: what `read` yields, known from headers alone.
        config: The model's config in Hugging Face keys, as stored; empty if there is none.
        home: The folder of the file that the config is from; None if it is not from a file.
        files: Bytes per file, by path relative to `path` (a single file by its own name).
        notes: Keys of a header's metadata, and of what is not a tensor; no sink writes them.
    """

    format: str
    path: Path
    tensors: Mapping[str, TensorSpec]
    config: Mapping[str, Any]
    home: Path | None = None
    files: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @abstractmethod
    def read(self, name: str, region: Region | None = None, out: Array | None = None) -> Array:
        """Read one region of one tensor, into `out` if it is given; from any thread.

        Args:
            name: A key of `tensors`.
            region: The hyper-rectangle wanted; None for the whole tensor.
            out: A writable C-contiguous array of the region's shape and the tensor's dtype.

        Raises:
            KeyError: There is no such tensor.
            ShapeError: The region or `out` does not fit the tensor.
            FormatError: The file is shorter than its header said when it was opened.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the files; to read afterwards is an `OSError`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sink(Protocol):
    """A checkpoint being written: invisible until `commit`, gone without a trace otherwise.

    Attributes:
        format: "safetensors", "maxtext" or "dcp".
        path: Where the checkpoint will appear.
        tensors: What was declared; `commit` requires every element to be written exactly once.
    """

    format: str
    path: Path
    tensors: Mapping[str, TensorSpec]

    @abstractmethod
    def write(self, name: str, array: Array, region: Region | None = None) -> None:
        """Write one region of one tensor; regions may come in any order, and from any thread.

        Raises:
            KeyError: The tensor was not declared.
            ShapeError: The array does not fit the region, or the region leaves the tensor.
            PortError: Some of it is already written, or the disk is full. After a failure all
                further writes fail, with the same error.
        """

    @abstractmethod
    def holds(self, name: str, region: Region, out: Array) -> bool:
        """Whether an interrupted run wrote this region, and it is still as it was written.

        It then counts as written. To find out, it is read back and its checksum compared.

        Args:
            name: A tensor that was declared.
            region: A region as it will be written.
            out: Where to read it: an array as `Source.read` takes it.
        """

    @abstractmethod
    def seal(self) -> Path:
        """Finish the files in their hidden place, and return where they can be read.

        Raises:
            PortError: A tensor is not fully written.
        """

    @abstractmethod
    def commit(self) -> None:
        """Seal, and publish atomically: all of it appears at `path`, or none.

        Raises:
            PortError: A tensor is not fully written, or something appeared at `path` meanwhile.
        """

    @abstractmethod
    def abort(self) -> None:
        """Remove everything written so far; harmless after `commit`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


def require(module: str) -> Any:
    """Import a library that only porting needs, or say how to install it.

    Raises:
        ModuleNotFoundError: It is not installed; the message names the extra that brings it.

    >>> require("absent_")
    Traceback (most recent call last):
    ModuleNotFoundError: absent_: not installed; pip install 'xlayout-arrays[port]' brings it
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{module}: not installed; pip install 'xlayout-arrays[port]' brings it",
            name=error.name,
        ) from error


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the numpy dtype of a neutral name (bfloat16 and fp8 come from ml_dtypes).

    Raises:
        FormatError: The name is not one of `DTYPES`.

    >>> numpy_dtype("bfloat16").itemsize
    2
    """
    if name not in DTYPES:
        raise FormatError(f"dtype: {name!r}; known are {', '.join(DTYPES)}")
    found: np.dtype[Any] = require("numpy").dtype(getattr(require("ml_dtypes"), name, name))
    return found


def resolve(region: Region | None, shape: tuple[int, ...]) -> Bounds:
    """Return (start, stop) per axis of a region, checked against the tensor's shape.

    Raises:
        ShapeError: A slice has a step, leaves the tensor, or there is not one per axis.

    >>> resolve((slice(1, 3), slice(None)), (4, 5))
    ((1, 3), (0, 5))
    """
    if region is None:
        return tuple((0, n) for n in shape)
    if len(region) != len(shape):
        raise ShapeError(f"region: {len(region)} slices; shape {shape} wants {len(shape)}")
    bounds = []
    for axis, (cut, n) in enumerate(zip(region, shape, strict=True)):
        start = 0 if cut.start is None else cut.start
        stop = n if cut.stop is None else cut.stop
        if cut.step not in (None, 1) or not 0 <= start <= stop <= n:
            raise ShapeError(f"region: {cut} on axis {axis}; 0 <= start <= stop <= {n} and step 1")
        bounds.append((start, stop))
    return tuple(bounds)


def check_out(out: Array | None, dtype: str, box: Bounds) -> Array:
    """Return `out` if it can take a region of this dtype, or a fresh array for None.

    Raises:
        ShapeError: `out` has another shape or dtype, is read-only or not C-contiguous.

    >>> check_out(None, "int8", ((1, 3), (0, 5))).shape
    (2, 5)
    """
    shape = tuple(stop - start for start, stop in box)
    if out is None:
        fresh: Array = require("numpy").empty(shape, numpy_dtype(dtype))
        return fresh
    if out.shape != shape or out.dtype != numpy_dtype(dtype):
        raise ShapeError(f"out: {out.dtype}{out.shape}; the region is {dtype}{shape}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ShapeError("out: read-only or strided; wanted a writable C-contiguous array")
    return out
