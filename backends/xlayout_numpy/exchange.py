"""Exchange for numpy: offer an array's memory to another framework, or adopt memory from one.

numpy's DLPack has no bfloat16 and no float8, and others refuse its read-only flag. Such arrays
cross as their bits, in the same memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_NATIVE = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 "
    "complex64 complex128"
)
_DTYPES = {name: np.dtype(name) for name in _NATIVE.split()}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_BITS = {1: np.uint8, 2: np.uint16}
_PACKED_BY_JAX = ("int2", "int4", "uint2", "uint4", "float4_e2m1fn")
_ALIGNMENT = 64  # what XLA asks of CPU memory
_HOST = (1, 3)  # DLPack device types: CPU, and host memory pinned by CUDA
_MAX_DIMS = 64


class Offer:
    """An array's memory, described for another framework."""

    __slots__ = ("_array", "dtype", "needs_bits", "pointer", "shape", "strides", "writable")

    device = (1, 0)
    donatable = False

    def __init__(self, array: np.ndarray, dtype: str) -> None:
        self._array = array
        self.dtype = dtype
        self.pointer = _pointer(array)
        self.shape = array.shape
        self.strides = tuple(step // array.itemsize for step in array.strides)
        self.writable = array.flags.writeable
        self.needs_bits = not self.writable or array.dtype not in _NAMES

    @property
    def obstacle(self) -> str | None:
        """Why DLPack cannot describe the memory, if it cannot."""
        if any(step < 0 or step % self._array.itemsize for step in self._array.strides):
            return "a stride is negative, or no whole number of elements"
        return None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def bits(self) -> np.ndarray:
        """The same memory under a dtype that DLPack has."""
        array = self._array
        return array if array.dtype in _NAMES else array.view(_BITS[array.itemsize])

    def copied(self, *, host: bool = False) -> Offer:  # noqa: ARG002 -- it is on the host already
        """The values in fresh, aligned, row-major memory."""
        source = self._array
        raw = np.empty(source.nbytes + _ALIGNMENT, np.uint8)
        start = -_pointer(raw) % _ALIGNMENT
        values = raw[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
        values[...] = source
        return Offer(values, self.dtype)

    def wait(self) -> None:
        """Return at once: numpy has written when it returns."""

    def release(self) -> None:
        """Refuse: nothing can empty an ndarray."""
        raise TypeError("a numpy.ndarray cannot be emptied; drop your references to it")


def offer(x: Any, /, *, detach: bool = False) -> Offer:
    """The memory of `x` for another framework, or a TypeError that says why it has none to give."""
    x = _plain(x)
    name = _NAMES.get(x.dtype) or _ml_name(x.dtype)
    if name is None:
        told = x.dtype.name if x.dtype.isbuiltin == 2 else x.dtype.str  # str is <V1 of all such
        raise TypeError(
            f"numpy.ndarray of dtype {told}: no other framework has it; {_way_out(x.dtype)}"
        )
    x = x.view(np.ndarray)
    if 1 in x.shape and x.flags.c_contiguous:
        # A size-1 axis may have any stride; an odd one would cost the adopter a layout of its own.
        x = x.reshape(-1).reshape(x.shape)
    return Offer(x, name)


def adopt(offered: Any, /, *, copy: bool | None = None) -> np.ndarray:
    """An array on the memory of `offered`, or on a copy of it."""
    kind, ordinal = offered.device
    shape = offered.shape
    if len(shape) > _MAX_DIMS:
        raise TypeError(f"{len(shape)} dimensions; numpy stops at {_MAX_DIMS}; reshape it first")
    dtype = _DTYPES.get(offered.dtype) or _ml_dtype(offered.dtype)
    obstacle = offered.obstacle
    if kind not in _HOST:
        obstacle = f"it is on device {ordinal} (DLPack type {kind}), not on the host"
    if obstacle and copy is False:
        raise BufferError(
            f"{offered.dtype}{list(shape)} cannot be shared: {obstacle}; pass copy=None"
        )
    if obstacle:
        offered = offered.copied(host=True)
    in_bits = offered.dtype not in _DTYPES
    x = np.from_dlpack(offered.bits()).view(dtype) if in_bits else np.from_dlpack(offered)
    moved = x.size and _pointer(x) != offered.pointer
    if x.shape != shape or x.dtype != dtype or (moved and not in_bits):
        raise RuntimeError(f"numpy changed {offered.dtype}{list(shape)} into {x.dtype}{x.shape}")
    if moved and copy is False:
        raise BufferError(
            f"{offered.dtype}{list(shape)} cannot be shared: its strides {tuple(offered.strides)} "
            "are not row-major, and its owner gives bits by rows; pass copy=None"
        )
    copied = obstacle and x.flags.writeable  # not so of what JAX has copied
    return x.copy() if copy and not copied else x


def keep(x: Any, /, *, copy: bool | None = None) -> np.ndarray:
    """`x`, which is numpy's already; a copy with copy=True."""
    array = _plain(x)
    return array.copy() if copy else array


def settle() -> None:
    """Return at once: numpy has read when it returns."""


def _plain(x: Any) -> np.ndarray:
    if not isinstance(x, np.ndarray):
        raise TypeError(f"expected a numpy.ndarray, got {type(x).__qualname__}; pass np.asarray(x)")
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError("a masked array would lose its mask; pass x.filled() and x.mask")
    return x


def _way_out(dtype: np.dtype[Any]) -> str:
    """What becomes of an array that no other framework takes as it is."""
    if dtype.names == ("float0",):
        return "it is JAX's gradient of integers, which holds nothing: leave it out"
    if dtype.names:
        return f"pass its fields one by one, such as x[{dtype.names[0]!r}]"
    if not dtype.isnative:
        return "bring it into native byte order: x.astype(x.dtype.newbyteorder('='))"
    if dtype.name in _PACKED_BY_JAX:
        return "cast it to whole bytes, or copy it into JAX, which packs it: jax.numpy.asarray(x)"
    return "cast it to a number, such as float32"


def _pointer(x: np.ndarray) -> int:
    address: int = x.__array_interface__["data"][0]
    return address


def _ml_name(dtype: np.dtype[Any]) -> str | None:
    """The name of one of the ml_dtypes that fill whole bytes, or None."""
    whole = dtype.isbuiltin == 2 and dtype.name.startswith(("bfloat16", "float8"))
    return dtype.name if whole else None


def _ml_dtype(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"numpy has no {name} of its own; pip install ml_dtypes, or cast") from None
    scalar = getattr(ml_dtypes, name, None)
    if scalar is None:
        raise TypeError(f"{name} has no numpy equivalent; cast it, or send its bits as uint8")
    dtype: np.dtype[Any] = np.dtype(scalar)
    return dtype
