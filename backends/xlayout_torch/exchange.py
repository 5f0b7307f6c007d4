"""Exchange for torch: offer a tensor's memory to another framework, or adopt memory from one.

DLPack carries an address, a shape, strides and a dtype. A tensor can mean more than that (a graph,
a tangent, a lazy sign, a transform that is running): every such tensor is refused or resolved here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils.dlpack import from_dlpack

from xlayout_native.strided import dense_strides
from xlayout_torch.lent import guarded
from xlayout_torch.memory import PLAIN, as_bytes, begins_nowhere, dispatch_modes, jit_tracing

_SHARED = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128 "
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
)
_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _SHARED.split()}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_BITS = {1: torch.uint8, 2: torch.uint16}
_HINTS = {
    "complex32": "torch.view_as_real(x) shares its memory",
    "float4_e2m1fn_x2": "send x.view(torch.uint8) and bitcast it on the other side",
}

# Bound once: they are asked about every tensor of a state dict.
_is_compiling = torch.compiler.is_compiling
_after_a_graph_break = torch._C._dynamo.eval_frame.get_eval_frame_callback
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_is_included = torch._C._dispatch_tls_is_dispatch_key_included
_PRE_DISPATCH = torch._C.DispatchKey.PreDispatch
"""What is there while `make_fx(..., pre_dispatch=True)` records, whose mode is not counted."""

CPU, CUDA, CUDA_HOST = 1, 2, 3  # DLPack device types


class Offer:
    """A tensor's memory, described for another framework."""

    __slots__ = ("_memory", "_source", "dtype", "pointer", "shape", "strides")

    writable = True
    donatable = True
    needs_bits = False

    def __init__(self, source: torch.Tensor, memory: torch.Tensor) -> None:
        self._source = source
        self._memory = memory
        self.dtype = _NAMES[memory.dtype]
        self.shape: tuple[int, ...] = memory.shape
        self.strides: tuple[int, ...] = memory.stride()
        self.pointer: int = memory.data_ptr()

    @property
    def device(self) -> tuple[int, int]:
        """DLPack's device type and ordinal."""
        memory = self._memory
        if not memory.is_cpu:
            return CUDA, memory.get_device()
        pinned = torch.cuda.is_initialized() and memory.is_pinned()  # type: ignore[no-untyped-call]
        return (CUDA_HOST if pinned else CPU), 0

    @property
    def obstacle(self) -> str | None:
        """Why the memory as it stands does not hold the values, if it does not."""
        if self._memory.is_conj():
            return "its conjugate bit is set"
        return "its negative bit is set" if self._memory.is_neg() else None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if self._memory.is_cpu:
            return self._memory.__dlpack__(**options)
        with torch.cuda.device(self._memory.device):  # torch exports from the current device alone
            return self._memory.__dlpack__(**options)

    def bits(self) -> torch.Tensor:
        """The same memory as unsigned integers."""
        return self._memory.view(_BITS[self._memory.itemsize])

    def values(self) -> torch.Tensor:
        """The values as bytes, row-major and flat."""
        return as_bytes(self._memory)

    def copied(self, *, host: bool = False) -> Offer:
        """The values in fresh row-major memory, complete when this returns on a CPU."""
        values = self._memory.resolve_conj().resolve_neg()
        values = values.cpu() if host else values
        if values.data_ptr() == self.pointer or not values.is_contiguous():
            values = values.clone(memory_format=torch.contiguous_format)
        return Offer(self._source, values)

    def wait(self) -> None:
        """Return once everything written so far is in memory."""
        if self._memory.is_cuda:
            torch.cuda.current_stream(self._memory.device).synchronize()

    def release(self) -> None:
        """Empty the tensor that made the offer; other tensors on the same storage keep it."""
        source = self._source
        source.data = torch.empty(0, dtype=source.dtype, device=source.device)


def offer(x: Any, /, *, detach: bool = False) -> Offer:
    """The memory of `x` for another framework, or a TypeError that says why it has none to give."""
    _refuse_recording()
    if type(x) not in PLAIN:
        _refuse_subclass(x)
    # A private TensorImpl: x.data = y or x.set_(y) by the caller must not free what is shared.
    memory: torch.Tensor = x.detach()
    if _is_wrapped(memory) or torch._is_functional_tensor(memory):
        raise TypeError(
            f"{_described(x)} is inside torch.func (vmap, grad, jvp or functionalize), where a "
            "tensor has no memory of its own; exchange it outside the transform"
        )
    if x.requires_grad and not detach:
        raise TypeError(
            f"{_described(x)} requires grad, and the other framework would not see its graph; "
            "pass x.detach(); to_jax also takes detach=True"
        )
    if forward_ad._current_level >= 0 and _tangent(x) is not None:
        raise TypeError(
            f"{_described(x)} carries a forward-mode tangent, which would be lost; "
            "pass torch.autograd.forward_ad.unpack_dual(x).primal"
        )
    if memory.layout is not torch.strided or memory.is_nested:
        kind, way = str(memory.layout), "x.to_dense() or its parts"
        if memory.is_nested:
            kind, way = "nested", "x.to_padded_tensor(0) or x.unbind()"
        raise TypeError(f"{_described(x)} is {kind}, not one strided array; pass {way}")
    if memory.dtype not in _NAMES:
        _refuse_dtype(x)
    if not memory.is_cpu:
        _refuse_device(x)
    if memory.numel() and begins_nowhere(memory):
        raise TypeError(f"{_described(x)} has elements but no memory (a null pointer)")
    if 1 in memory.shape and memory.is_contiguous():
        # A size-1 axis may have any stride; an odd one would cost the adopter a layout of its own.
        memory = memory.as_strided(memory.shape, dense_strides(memory.shape))
    return Offer(x, memory)


def adopt(offered: Any, /, *, copy: bool | None = None) -> torch.Tensor:
    """A tensor on the memory of `offered`, or on a copy of it."""
    _refuse_recording()
    dtype = _DTYPES.get(offered.dtype)
    if dtype is None:
        raise TypeError(
            f"{offered.dtype} has no torch equivalent; cast it, or send its bits as uint8"
        )
    obstacle = _obstacle(offered)
    if obstacle and copy is False:
        raise BufferError(
            f"{offered.dtype}{list(offered.shape)} cannot be shared: {obstacle}; "
            "pass copy=None to to_torch, or a copy of it"
        )
    if obstacle or copy:
        offered = offered.copied()
    shape = offered.shape
    kind, index = offered.device
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=f"cuda:{index}" if kind == CUDA else "cpu")
    if offered.needs_bits:
        x: torch.Tensor = from_dlpack(offered.bits()).view(dtype)
    else:
        # On a CPU there is no stream to agree on: the capsule alone is half the price.
        x = from_dlpack(offered.__dlpack__() if kind == CPU else offered)
    if x.dtype is not dtype or x.shape != shape or x.data_ptr() != offered.pointer:
        raise RuntimeError(f"torch changed {offered.dtype}{list(shape)} into {_described(x)}")
    return guarded(x) if kind == CUDA else x


def keep(x: Any, /, *, copy: bool | None = None) -> torch.Tensor:
    """`x`, which is torch's already; a clone, in its graph, with copy=True."""
    if not isinstance(x, torch.Tensor):
        raise _no_tensor(x)
    return x.clone() if copy else x


def settle() -> None:
    """Return at once: torch's streams have an order, and what reads a tensor is ahead in it."""


def _obstacle(offered: Any) -> str | None:
    """Why torch cannot use the memory as it stands, if it cannot."""
    known: str | None = offered.obstacle
    if known:
        return known
    if not offered.writable:
        return "it is read-only, and torch has no read-only tensors"
    # numpy is content with 8 bytes, but instructions that torch uses crash the process.
    if offered.dtype == "complex128" and offered.pointer % 16 and 0 not in offered.shape:
        return "its address is not a multiple of 16 bytes"
    return None


def _refuse_recording() -> None:
    """Refuse where the result would be baked into a graph as a constant."""
    if _is_compiling() or _after_a_graph_break() or jit_tracing():
        where = "torch.compile, torch.export or torch.jit.trace"
    elif _is_included(_PRE_DISPATCH) or (dispatch_modes() and _recording_mode()):
        where = "make_fx, FakeTensorMode or functionalization"
    else:
        return
    raise TypeError(
        f"memory cannot be exchanged inside {where}; do it outside, "
        "or wrap the calling function in torch.compiler.disable"
    )


def _recording_mode() -> bool:
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return any(mode.is_infra_mode() for mode in _get_current_dispatch_mode_stack())


def _refuse_subclass(x: Any) -> None:
    if not isinstance(x, torch.Tensor):
        raise _no_tensor(x)
    if x.is_nested or x.layout is not torch.strided:
        return  # `offer` refuses it by its layout
    storage = x.untyped_storage()
    try:
        # A FakeTensor says it is on a device; its storage, on meta, knows better.
        has_memory = storage.device == x.device and bool(storage.data_ptr() or not x.numel())
    except RuntimeError:
        has_memory = False
    if not has_memory:
        raise TypeError(
            f"{_described(x)} is a wrapper without memory of its own; "
            "unwrap it first (a DTensor: x.to_local(), or dtensor_to_jax(x))"
        )


def _no_tensor(x: Any) -> TypeError:
    hint = "; pass x.state_dict()" if isinstance(x, torch.nn.Module) else ""
    kind = f"{type(x).__module__}.{type(x).__qualname__}"
    return TypeError(f"expected a torch.Tensor, got {kind}{hint}")


def _tangent(x: torch.Tensor) -> torch.Tensor | None:
    tangent: torch.Tensor | None = forward_ad.unpack_dual(x).tangent  # type: ignore[no-untyped-call]
    return tangent


def _refuse_dtype(x: torch.Tensor) -> None:
    name = str(x.dtype).removeprefix("torch.")
    if x.is_quantized:
        hint = "send x.int_repr() with its scale and zero point"
    else:
        hint = _HINTS.get(name, "cast it, or send x.view(torch.uint8)")
    raise TypeError(f"{_described(x)}: no other framework has {name}; {hint}")


def _refuse_device(x: torch.Tensor) -> None:
    if not x.is_cuda:
        raise TypeError(f"{_described(x)} has no memory on cpu or cuda; pass real data, or x.cpu()")
    if torch.cuda.is_current_stream_capturing():
        raise TypeError(f"{_described(x)}: a CUDA graph is being captured; exchange it before that")


def _described(x: torch.Tensor) -> str:
    name = str(x.dtype).removeprefix("torch.")
    shape = "" if x.is_nested else list(x.shape)
    return f"{type(x).__name__} {name}{shape} on {x.device}"
