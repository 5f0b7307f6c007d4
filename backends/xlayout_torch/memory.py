"""Memory: which tensors have memory that may be read, shown and written past autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version
from torch.utils._device import DeviceContext

from xlayout_native.overlap import Extent, conflict, meets_itself
from xlayout_native.overlap import extent as extent_of
from xlayout_native.strided import dense_strides

__all__ = [
    "GATES",
    "OFFSETS",
    "PLAIN",
    "WIDTHS",
    "addresses_of",
    "any_closed",
    "as_bytes",
    "begins_nowhere",
    "count_write",
    "dispatch_modes",
    "extent",
    "function_modes",
    "grad_enabled",
    "jit_tracing",
    "made_as",
    "plain",
    "refusal",
    "release",
    "sealed",
    "strided",
    "strides",
    "transforms",
    "under_function_mode",
    "view_strides",
    "watched",
]

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""The types that run no code of others."""

WIDTHS = {
    dtype: dtype.itemsize
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
    and not dtype.is_complex
    and not str(dtype).startswith("torch.q")
}
"""Dtype -> bytes, of what the kernel copies: no complex numbers, which may be conjugated lazily."""


# Torch's internals, looked up once, because they are asked on every call.
dispatch_modes = torch._C._len_torch_dispatch_stack
function_modes = torch._C._len_torch_function_stack
jit_tracing = torch._C._is_tracing
transforms = torch._C._are_functorch_transforms_active
grad_enabled = torch.is_grad_enabled
_strided = torch.strided


def strided(x: Any) -> bool:
    """Whether the elements have places in memory, by strides."""
    return x.layout is _strided


# Where Dynamo traces the backward pass of an autograd.Function, it cannot ask for a layout.
strided._torchdynamo_inline = lambda x: not x.is_sparse  # type: ignore[attr-defined]


def watched() -> bool:
    """Whether a dual level, a transform, a mode or a tracer must see every call.

    A transform must even see calls on tensors that it did not wrap, because it wraps their results.
    """
    return bool(
        forward_ad._current_level >= 0
        or transforms()
        or dispatch_modes()
        or (function_modes() and under_function_mode())
        or jit_tracing()
    )


def under_function_mode() -> bool:
    """Whether a mode must see calls of torch's functions; that of a default device need not."""
    modes = range(function_modes())
    return any(type(torch._C._get_function_stack_at(k)) is not DeviceContext for k in modes)


def _freed(x: Any) -> bool:
    try:
        return x.numel() > 0 and not x.untyped_storage().nbytes()
    except NotImplementedError:  # it has no storage, and other gates are closed
        return False


GATES: dict[str, Callable[[Any], bool]] = {
    "subclass": lambda x: type(x) not in PLAIN,
    "layout": lambda x: x.layout is not torch.strided,
    "forward mode": lambda _x: forward_ad._current_level >= 0,
    "transform": lambda x: transforms() or torch._C._functorch.is_functorch_wrapped_tensor(x),
    "batches": torch._C._functorch.is_legacy_batchedtensor,  # of the older vmap, autograd's own
    "functionalization": torch._is_functional_tensor,
    "dispatch mode": lambda _x: dispatch_modes() > 0,
    "function mode": lambda _x: under_function_mode(),
    "tracing": lambda _x: jit_tracing(),
    "conjugate": lambda x: x.is_conj(),
    "negative": lambda x: x.is_neg(),
    "zero": lambda x: x._is_zerotensor(),
    "quantized": lambda x: x.is_quantized,
    "freed": _freed,
}
"""Name -> whether it keeps what a tensor holds from being seen as plain strided memory."""


def plain(x: Any) -> bool:
    """Whether no gate that is about the tensor alone is closed, as torch's dispatcher sees it.

    Every lazy state, wrapper and other layout has a dispatch key of its own, so one question
    answers for all but freed memory. If the answer is no, the gates say why.
    """
    return (
        type(x) in PLAIN
        and (_keys_of(x).raw_repr() in _plain_keys or _learned(x))
        and (x.data_ptr() >= OFFSETS or not begins_nowhere(x))
    )


_keys_of = torch._C._dispatch_keys
_plain_keys: set[int] = set()
"""The keys of plain tensors, and of those that inference mode made, on devices of known types."""
_known = {"meta"}
"""Types of devices whose keys are known already; and meta, which has no memory to be seen."""


def _learned(x: Any) -> bool:
    """Whether a tensor is plain, if it is the first on a device of its type."""
    kind = x.device.type
    if kind in _known or watched():  # a mode may make others
        return False
    for inference in (False, True):
        with torch.inference_mode(inference):
            _plain_keys.add(_keys_of(torch.empty(0, device=kind)).raw_repr())
    _known.add(kind)
    return plain(x)


def any_closed(gates: Mapping[str, Callable[[Any], bool]], x: Any) -> bool:
    """Whether one of these gates is closed for a tensor."""
    for closed in gates.values():  # noqa: SIM110 -- a generator takes half as long again
        if closed(x):
            return True
    return False


OFFSETS = 1 << 40
"""Addresses below this may be offsets into freed memory, for which there is a slower test."""


def begins_nowhere(x: Any) -> bool:
    """Whether there is no memory behind a tensor's storage: none is needed, or it was freed."""
    return bool(x.data_ptr() == x.storage_offset() * x.itemsize)


def addresses_of(xs: Sequence[Any]) -> list[int] | None:
    """Where the row-major memory of each is; None where one is not for the kernel to read."""
    found = []
    try:
        for x in xs:
            if (
                type(x) not in PLAIN
                or not x.is_cpu
                or not x.is_contiguous()
                or x.is_neg()
                or (x.requires_grad and grad_enabled())
                or ((address := x.data_ptr()) < OFFSETS and begins_nowhere(x))
            ):
                return None
            found.append(address)
    except RuntimeError:  # one has no memory of its own
        return None
    return found


def made_as(shapes: Iterable[Sequence[int]]) -> list[tuple[Sequence[int], tuple[int, ...]]]:
    """What `new_empty_strided` makes row-major tensors from, empty ones too, as torch has them."""
    return [(shape, dense_strides([max(n, 1) for n in shape])) for shape in shapes]


def strides(x: Any, /) -> tuple[int, ...] | None:
    # A raw write that autograd, a transform or a mode does not see gives silently wrong results.
    return None if x.requires_grad and grad_enabled() else view_strides(x)


def view_strides(x: Any, /) -> tuple[int, ...] | None:
    if (watched() or not plain(x)) and any_closed(GATES, x):
        return None
    # For a raw view whose elements share memory, torch's gradient would be the mean of theirs.
    if x.requires_grad and grad_enabled() and meets_itself(_extent(x)):
        return None
    return tuple(x.stride())


def as_bytes(x: torch.Tensor) -> torch.Tensor:
    """The values of a tensor as bytes, row-major and flat; a view where that is possible."""
    flat = x.resolve_conj().resolve_neg().flatten()
    if flat.stride() != (1,):  # `contiguous` leaves one element whatever its stride is
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)


def count_write(xs: Sequence[Any]) -> None:
    """Tell autograd, which may have kept them, that these were written into."""
    increment_version(xs)


def sealed(x: Any) -> bool:
    """Whether torch forbids writes into it: an inference tensor, outside inference mode."""
    return bool(x.is_inference()) and not torch.is_inference_mode_enabled()


_WATCHERS = "forward mode", "transform", "batches", "functionalization", "dispatch mode", "tracing"
_WATCHED = {name: GATES[name] for name in _WATCHERS}
"""The gates of tracers and transforms, which would not see that a tensor is emptied."""


def release(x: Any, /) -> Callable[[], None]:
    if type(x) not in PLAIN:
        raise TypeError(f"donate: nothing can empty a {type(x).__qualname__}; do not donate it")
    if x.requires_grad and grad_enabled():
        raise TypeError(
            "donate: x requires grad, and autograd would be left with nothing; pass x.detach()"
        )
    if any_closed(_WATCHED, x):
        raise TypeError(
            "donate: a transform, a tracer or a dispatch mode is active, which would not see that "
            "x is emptied; leave it out"
        )

    def empty() -> None:
        count_write((x,))
        x.data = torch.empty(0, dtype=x.dtype, device=x.device)

    return empty


def extent(x: Any, /) -> Extent | None:
    return None if strides(x) is None else _extent(x)


def refusal(out: Any, inputs: Sequence[Any], /) -> str | None:
    if out.requires_grad:
        return "it requires grad, and autograd would not see the write"
    if strides(out) is None:
        return "it is no plain strided tensor, or a transform or mode is active"
    if out.is_meta:
        return "a meta tensor has no memory"
    if sealed(out):
        return "it is an inference tensor, which torch has nobody write outside inference mode"
    if any(x.is_conj() or x.is_neg() for x in inputs):
        return "an input is conjugated or negated when read; pass x.resolve_conj().resolve_neg()"
    if any(strides(x) is None for x in inputs):
        return (
            "an input requires grad or is inside a transform, which would not see the write, or is "
            "no plain strided tensor"
        )
    return conflict(_extent(out), map(_extent, inputs))


def _extent(x: Any) -> Extent:
    strides = [step * x.element_size() for step in x.stride()]
    return extent_of(x.data_ptr(), x.shape, strides, x.element_size())
