"""CUDA: copies by a Triton kernel in place of torch's, if it should be faster and nobody looks on.

The gates are those of the CPU's kernel and one more: nothing is launched while a CUDA graph is
captured. A small trial comes before the first use of a device, and another before that of each way
to move words; what fails or comes out wrong is left to torch there. XLAYOUT_TRITON=off does without
the kernel.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch

from xlayout_native.strided import one_move
from xlayout_torch import launches, memory, native, trial
from xlayout_torch.launches import addresses_of
from xlayout_triton.plan import Moves
from xlayout_triton.uncompiled import CompileError, reason_of, say, switched_off

__all__ = [
    "GATES",
    "batch_strides",
    "concatenates_well",
    "copy",
    "fresh",
    "is_closed",
    "move",
    "status",
    "tried",
    "why_not",
    "writer",
]

SMALL = 1 << 24
"""Bytes below which torch copies: its call takes 10 us of the host, and this one 35. In a series of
calls the two are even at 10 MB for transposes, and at 30 MB for moves of rows."""

SEVERAL = 1 << 25
"""The same for a call that reads or writes several tensors."""

JOIN = 1 << 28
"""Bytes below which torch's `cat` joins rows faster; whole tensors it always joins faster."""

GATES: dict[str, Callable[[Any], bool]] = native.GATES | {
    "device": lambda x: x.device.type != "cuda",
    "capture": lambda _x: torch.cuda.is_current_stream_capturing(),
}
"""Name -> whether it keeps the kernel away from a tensor."""

_is_cuda = operator.attrgetter("is_cuda")  # what the gate "device" asks, faster

_OF_THE_CALL = {"forward mode", "dispatch mode", "function mode", "tracing", "capture"}
"""Gates that are closed for every tensor or for none."""


def fresh(x: Any) -> Any | None:
    """A row-major copy of a tensor, or None where torch should make it."""
    if x.numel() * x.itemsize < SMALL or is_closed(x) or x.is_contiguous():
        return None
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return y if _moved(_one_move(x.shape, x.stride()), (x,), (y,)) else None


def writer(
    moves: Moves, count: int, shapes: Sequence[tuple[int, ...]]
) -> Callable[[Any], Sequence[Any] | None]:
    """All moves from one row-major tensor, of so many elements, into fresh ones, or None.

    With fewer questions than `fresh` and `move` ask, for a host that has to keep up with a device.
    """
    least = SMALL if len(moves) == 1 else SEVERAL
    alike = len(moves) == 1 and moves[0][2][2] == ((count, 1, 1),)  # torch's own is as fast
    sizes = memory.made_as(shapes)

    def write(x: Any) -> Sequence[Any] | None:
        if alike or count * x.itemsize < least or is_closed(x) or not x.is_contiguous():
            return None
        new = x.new_empty_strided  # by a third faster than `torch.empty`
        made = [new(*size) for size in sizes]
        return made if _moved(moves, (x,), made) else None

    return write


def concatenates_well(xs: Sequence[Any], axis: int) -> bool:
    """Whether torch's `cat` is the faster way to join these along an axis."""
    if not all(x.is_contiguous() for x in xs):
        return False
    return axis == 0 or sum([x.nbytes for x in xs]) < JOIN


def move(moves: Moves, arrays: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether all moves are made, between tensors of one dtype; if not, torch should make them."""
    if is_closed(*arrays, *outputs) or sum([y.nbytes for y in outputs]) < SEVERAL:
        return False
    memory.count_write(outputs)  # first: as the write ends, a handler of signals may raise
    return _moved(moves, arrays, outputs)


def batch_strides(xs: Sequence[Any]) -> tuple[tuple[int, ...], ...] | None:
    """The strides of tensors whose copies can wait for others; None if torch should copy them."""
    first = xs[0]
    if torch.compiler.is_compiling() or type(first) not in memory.PLAIN or not _is_cuda(first):
        return None
    for x in xs[1:]:
        if type(x) not in memory.PLAIN or x.dtype != first.dtype or x.device != first.device:
            return None
    return None if is_closed(*xs) else tuple([x.stride() for x in xs])


def status() -> str:
    """One line about the kernel: at work, and where, or why it is not.

    >>> status().startswith("Triton" if torch.cuda.is_available() else "not in use: ")
    True
    """
    if not torch.cuda.is_available():
        return "not in use: torch sees no CUDA device"
    device = torch.device("cuda", torch.cuda.current_device())
    reason = why_not(device)
    if reason:
        return f"not in use: {reason}"
    import triton

    return f"Triton {triton.__version__}, {torch.cuda.get_device_name(device)}"


def why_not(device: torch.device) -> str:
    """Why the kernel is not to be used on a device, or nothing; the first question is a trial."""
    try:
        return tried(device)
    except torch.OutOfMemoryError as error:
        return reason_of(error)


@lru_cache
def tried(device: torch.device) -> str:
    """The answer of `why_not`, which holds from now on.

    Raises:
        OutOfMemoryError: there was too little for a trial; the next question starts another.
    """
    if off := switched_off():
        return off
    try:
        if device.type == "cuda" and launches.interprets():
            return "TRITON_INTERPRET has Triton run on the host, which reads no memory of a GPU"
        return "" if trial.passes(device) else "a trial came out wrong"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever it is, torch can copy
        return reason_of(error)


copy = partial(launches.copy, check=trial.require)
"""Whether all moves are made between addresses on a device; some have too many axes.

Raises:
    CompileError: Triton does not compile the kernel for some of them, or compiles it wrong.
"""


def _moved(moves: Moves, arrays: Sequence[Any], outputs: Sequence[Any]) -> bool:
    device = outputs[0].device
    if why_not(device):
        return False
    try:
        return copy(moves, arrays[0].itemsize, addresses_of(arrays), addresses_of(outputs), device)
    except CompileError as error:
        say(error, "torch")
        return False


_one_move = lru_cache(4096)(one_move)


def is_closed(*xs: Any) -> bool:
    """Whether a gate is closed for a call on these."""
    if not memory.watched() and all(map(_plain, xs)):
        return GATES["capture"](xs[0])  # the only one left; to ask all takes 3 us for each tensor
    for gate, closed in GATES.items():
        for x in xs[:1] if gate in _OF_THE_CALL else xs:
            if closed(x):
                return True
    return False


def _plain(x: Any) -> bool:
    """Whether all gates about the tensor alone are open, by few questions; False proves nothing."""
    return memory.plain(x) and _is_cuda(x) and not x.requires_grad
