"""Exchange for JAX: offer an array's memory to another framework, or adopt memory from one.

Every adoption is `from_dlpack(..., copy=False)`, and a copy is made by the side that gives: up to
JAX 0.11, `from_dlpack(copy=True)` aliases its source as a buffer that `jit` may write into.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.backend import backends

from xlayout_jax.fresh import copied, narrowed
from xlayout_jax.lent import is_lent, lend
from xlayout_jax.refusals import deleted, described, no_equivalent, refuse_abstract
from xlayout_jax.tracers import is_tracer
from xlayout_native.strided import dense_strides

_SHARED = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz "
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
)
_DTYPES: dict[str, np.dtype[Any]] = {name: jnp.dtype(name) for name in _SHARED.split()}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_BITS = {1: np.uint8, 2: np.uint16}
_NARROWER = {
    "int64": "int32",
    "uint64": "uint32",
    "float64": "float32",
    "complex128": "complex64",
}

CPU, CUDA, CUDA_HOST = 1, 2, 3  # DLPack device types
_ALIGNMENT = {CPU: 64, CUDA: 16, CUDA_HOST: 64}  # what XLA asks of a parameter

# What is already known: types that are concrete arrays, and shardings that are one device.
_CONCRETE: set[type] = set()
_PLACES: dict[Any, tuple[tuple[int, int], str | None]] = {}
_MOST = 1024  # shardings; a program with more than this starts over


class Offer:
    """The memory of an array on one device, described for another framework."""

    __slots__ = ("__dlpack__", "_array", "device", "dtype", "obstacle", "pointer", "shape")

    donatable = True
    needs_bits = False

    def __init__(
        self, array: jax.Array, dtype: str, device: tuple[int, int], obstacle: str | None
    ) -> None:
        self._array = array
        self.__dlpack__ = array.__dlpack__ if device[0] != CUDA else _exporter(array)
        self.dtype = dtype
        self.shape = array.shape
        self.device = device
        self.obstacle = obstacle
        if device[0] == CUDA and _ignores_streams():
            array.block_until_ready()  # until then its memory may change
        self.pointer: int = 0 if obstacle else array.unsafe_buffer_pointer()

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        array: Any = self._array
        return dense_strides(self.shape, array.format.layout.major_to_minor)

    @property
    def writable(self) -> bool:
        """Whether others may write: not into memory that `adopt` lent JAX for reading."""
        return not is_lent(self.pointer)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def bits(self) -> np.ndarray:
        """The same memory as unsigned integers, read-only."""
        view = np.asarray(self._array)
        return view.view(_BITS[view.itemsize])

    @jax.ensure_compile_time_eval()
    def copied(self, *, host: bool = False) -> Offer:
        """The values in fresh memory, complete when this returns."""
        if host or self.obstacle:
            values = jax.device_put(np.asarray(self._array), _device(CPU, 0))
        else:
            values = copied(self._array)
        return offer(values.block_until_ready())

    def wait(self) -> None:
        """Return once the array is computed."""
        self._array.block_until_ready()

    def release(self) -> None:
        """Delete the array that made the offer; whoever adopted the memory keeps it."""
        self._array.delete()


def offer(x: Any, /, *, detach: bool = False) -> Offer:
    """The memory of `x` for another framework, or an error that says why it has none to give."""
    if type(x) not in _CONCRETE:
        refuse_abstract(x)
        _CONCRETE.add(type(x))
    name = _NAMES.get(x.dtype)
    if name is None:
        raise no_equivalent(x)
    if x.is_deleted():
        raise deleted(x)
    place = _PLACES.get(x.sharding)
    if place is None:
        place = _place(x)
        if len(_PLACES) >= _MOST:
            _PLACES.clear()
        _PLACES[x.sharding] = place
    return Offer(x, name, *place)


def adopt(
    offered: Any,
    /,
    *,
    copy: bool | None = None,
    x64: str = "error",
    layout: str = "row_major",
    device: Any = None,
) -> jax.Array:
    """An array on the memory of `offered`, or on a copy; `device` picks one of the host devices."""
    name = offered.dtype
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise TypeError(f"{name} has no JAX equivalent; cast it, or send its bits as uint8")
    wide = name in _NARROWER and not jax.config.jax_enable_x64  # type: ignore[attr-defined]
    if wide and x64 == "error":
        other = "pass x64='narrow' (a checked cast) or x64='keep' (transport only)"
        other = other if device is None else f"cast it to {_NARROWER[name]}"  # of a shard
        raise TypeError(
            f"{name}{list(offered.shape)} would be narrowed to {_NARROWER[name]}, because "
            f"jax_enable_x64 is off; enable it, or {other}"
        )
    why = obstacle(offered, layout)
    if copy is False and (why or (wide and x64 == "narrow")):
        if why and not obstacle(offered, "any"):
            why += " (layout='any' would share it)"
        why = why or f"x64='narrow' casts it to {_NARROWER[name]}"
        raise BufferError(f"{name}{list(offered.shape)} cannot be shared: {why}; pass copy=None")
    if why or copy:
        offered = offered.copied()
    # JAX takes these steps itself, and would record them for a constant while it traces a function.
    at_once = wide or offered.needs_bits or 0 in offered.shape
    mode = jax.ensure_compile_time_eval() if at_once else nullcontext()
    with mode, jax.enable_x64(True) if wide else nullcontext():
        x = _imported(offered, dtype, device)
        return narrowed(x, _NARROWER[name]) if wide and x64 == "narrow" else x


def keep(x: Any, /, *, copy: bool | None = None, **_of_an_import: Any) -> jax.Array:
    """`x`, which is JAX's already; a copy with copy=True."""
    if not is_tracer(x):
        refuse_abstract(x)
        if x.is_deleted():
            raise deleted(x)
    elif copy is False:
        raise TypeError(f"{x.aval} is traced and has no memory to share; pass copy=None")
    copying = jnp.copy if is_tracer(x) else copied
    kept: jax.Array = copying(x) if copy else x
    return kept


def settle() -> None:
    """Return once nothing reads what was offered: whatever does has results, to be waited for."""
    for platform in backends():
        for x in jax.live_arrays(platform):  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):  # it was deleted meanwhile, or its computation failed
                x.block_until_ready()


class _On:
    """An offer under the ordinal of the host device that shall own it: they share all memory."""

    __slots__ = ("_offered", "_ordinal")

    def __init__(self, offered: Any, ordinal: int) -> None:
        self._offered = offered
        self._ordinal = ordinal

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, self._ordinal

    def __dlpack__(self, **options: Any) -> Any:
        return self._offered.__dlpack__(**options)


def _imported(offered: Any, dtype: np.dtype[Any], device: Any) -> jax.Array:
    kind, shape = offered.device[0], offered.shape
    if kind != CPU and _ignores_streams():
        offered.wait()
    x: jax.Array
    if 0 in shape:
        x = jax.device_put(np.empty(shape, dtype), device or _device(*offered.device))
    elif offered.needs_bits:
        bits = np.from_dlpack(offered.bits())  # which JAX holds on to, and no view of it
        x = jax.device_put(bits.view(dtype), device or _device(CPU, 0))
        if not offered.writable:
            lend(bits, offered.pointer)
    elif kind == CPU and device is not None:
        x = jax.dlpack.from_dlpack(_On(offered, device.local_hardware_id), copy=False)
    else:
        x = jax.dlpack.from_dlpack(offered, copy=False)
    moved = 0 not in shape and x.unsafe_buffer_pointer() != offered.pointer
    if moved or x.shape != shape or x.dtype != dtype or device not in (None, x.device):
        raise RuntimeError(
            f"JAX changed {offered.dtype}{list(shape)} into {described(x)} on {x.device}"
        )
    return x


def obstacle(offered: Any, layout: str) -> str | None:
    """Why JAX cannot use the memory as it stands, if it cannot."""
    shape, strides = offered.shape, offered.strides
    known: str | None = offered.obstacle
    if known or 0 in shape:
        return known
    if strides != dense_strides(shape):
        if not _dense(shape, strides):
            return f"its strides {tuple(strides)} leave gaps or overlap"
        if layout == "row_major" or offered.needs_bits:  # device_put goes by rows
            return f"its strides {tuple(strides)} are not row-major"
    alignment = _ALIGNMENT[offered.device[0]]
    if offered.pointer % alignment:
        return f"its address is not a multiple of {alignment} bytes"
    return None


def _dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether some order of the axes makes the strides row-major."""
    expected = 1
    for step, n in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if step != expected:
            return False
        expected *= n
    return True


def _place(x: jax.Array) -> tuple[tuple[int, int], str | None]:
    """Its device as DLPack knows it, and why memory cannot be shared from there, if it cannot."""
    devices: Any = x.sharding.device_set
    if len(devices) != 1:
        raise ValueError(
            f"{described(x)} is spread over {len(devices)} devices; exchange it shard by shard "
            "(jax_to_shards, jax_to_dtensor), or put it on one device with jax.device_put"
        )
    (device,) = devices
    memory = x.sharding.memory_kind
    if device.platform == "cpu":
        return (CPU, 0), None  # every host device is the same memory
    if device.platform not in ("gpu", "cuda"):
        return (0, device.id), f"it is on a {device.platform} device, which DLPack does not reach"
    if memory not in (None, "device"):
        return (CUDA_HOST, 0), f"it is in {memory} memory, which torch and numpy do not adopt"
    return (CUDA, device.local_hardware_id), None


def _device(kind: int, ordinal: int) -> Any:
    devices: Any = jax.local_devices(backend="cpu" if kind == CPU else "gpu")
    return next(device for device in devices if device.local_hardware_id == ordinal)


def _exporter(array: jax.Array) -> Any:
    if not _ignores_streams():
        return array.__dlpack__
    return lambda **options: array.__dlpack__(**options | {"stream": None})  # waits for the array


def _ignores_streams() -> bool:
    """Whether XLA's GPU client knows no streams of others: none to wait for, none to make wait."""
    setting = os.environ.get("XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT", "0")
    return setting.lower() in ("1", "true")
