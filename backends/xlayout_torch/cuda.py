"""CUDA: copies by a Triton kernel in place of torch's, if it should be faster and nobody looks on.

The gates are those of the CPU's kernel and one more: nothing is launched while a CUDA graph is
captured. The first use of a device is a small trial; if that fails or comes out wrong, torch goes
on copying there. XLAYOUT_TRITON=off does without the kernel.
"""

from __future__ import annotations

import operator
import os
from array import array
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache
from typing import Any

import torch

from xlayout_native.strided import one_move
from xlayout_torch import memory, native
from xlayout_triton.plan import ALONE, FIRST, FURTHER, Launch, Moves, Plan, alignment, planned

__all__ = [
    "GATES",
    "Uploads",
    "addresses_of",
    "copy",
    "fresh",
    "is_closed",
    "joins",
    "kept",
    "launch",
    "move",
    "on",
    "status",
    "stream",
    "together",
    "uploaded",
    "why_not",
    "words_of",
]

SMALL = 1 << 24
"""Bytes below which torch copies: its call takes 10 us of the host, and this one 35. Of calls in a
row both take as long at 10 MB if they are transposes, and at 30 MB if they move rows."""

SEVERAL = 1 << 25
"""The same of a call that reads or writes several tensors."""

JOIN = 1 << 28
"""Bytes below which torch's `cat` is the faster join of rows; of whole tensors it always is."""

TABLES = 16
"""Uploads that a plan keeps: its tables for streams, and its ends for where tensors lay before."""

GATES: dict[str, Callable[[Any], bool]] = native.GATES | {
    "device": lambda x: x.device.type != "cuda",
    "capture": lambda _x: torch.cuda.is_current_stream_capturing(),
}
"""Name -> whether it keeps the kernel away from a tensor."""

Uploads = dict[Hashable, Any]
"""What a plan has on devices."""

_there = operator.attrgetter("is_cuda")  # what the gate "device" asks, sooner

_OF_THE_CALL = {"forward mode", "dispatch mode", "function mode", "tracing", "capture"}
"""Gates that are closed for every tensor or for none."""


def fresh(x: Any) -> Any | None:
    """A row-major copy of a tensor, or None where torch should make it."""
    if x.numel() * x.itemsize < SMALL or is_closed(x) or x.is_contiguous():
        return None
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return y if _moved(_one_move(x.shape, x.stride()), (x,), (y,)) else None


def joins(xs: Sequence[Any], axis: int) -> bool:
    """Whether torch's `cat` is the faster way to join these along an axis."""
    if not all(x.is_contiguous() for x in xs):
        return False
    return axis == 0 or sum([x.nbytes for x in xs]) < JOIN


def move(moves: Moves, arrays: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether all moves are made, between tensors of one dtype; if not, torch should make them."""
    if is_closed(*arrays, *outputs) or sum([y.nbytes for y in outputs]) < SEVERAL:
        return False
    if not _moved(moves, arrays, outputs):
        return False
    memory.count_write(outputs)
    return True


def together(xs: Sequence[Any]) -> tuple[tuple[int, ...], ...] | None:
    """The strides of tensors whose copies can wait for others; None of those torch should copy."""
    first = xs[0]
    if type(first) not in memory.PLAIN or not _there(first) or torch.compiler.is_compiling():
        return None
    for x in xs[1:]:
        if type(x) not in memory.PLAIN or x.dtype != first.dtype or x.device != first.device:
            return None
    return None if is_closed(*xs) else tuple([x.stride() for x in xs])


def launch(made: Plan, table: Any, ends: Any, source: int = 0, target: int = 0) -> None:
    """Start a plan whose table and ends are on the current device; addresses are added to ends."""
    chained = _chains(table.device)
    for place, one in enumerate(made.launches):
        link = (FURTHER if place else FIRST) if chained else ALONE
        fixed = one.jobs is not None, link, one.tile
        arguments = table, ends, source, target, one.first, one.jobs or 0, one.group, *fixed
        kernel = _kernels.get((fixed, table.device))
        if kernel is None:
            _kernels[fixed, table.device] = _first(one, arguments, link)
        else:  # without the half of a launch's time in which Triton looks it up
            kernel[one.programs, 1, 1](*arguments)


_kernels: dict[Any, Any] = {}
"""((whether it has several pieces, link, tile), device) -> kernel."""


def _first(one: Launch, arguments: tuple[Any, ...], link: int) -> Any:
    """Start a launch of a new kind; what Triton compiled for it, which an interpreter does not."""
    from xlayout_triton.copy import copy_tiles

    options = {"num_warps": one.tile.warps, "num_stages": 1}
    if link != ALONE:
        options["launch_pdl"] = True
    return copy_tiles[one.programs,](*arguments, **options)


@cache
def _chains(device: torch.device) -> bool:
    """Whether launches on a device can be a chain: NVIDIA's can, from Hopper on."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    from triton import JITFunction

    from xlayout_triton.copy import copy_tiles

    can = torch.cuda.get_device_capability(device) >= (9, 0)
    return can and isinstance(copy_tiles, JITFunction)  # which an interpreter's kernel is not


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


@lru_cache
def why_not(device: torch.device) -> str:
    """Why the kernel is not to be used on a device, or nothing; the first question is a trial."""
    if os.environ.get("XLAYOUT_TRITON") == "off":
        return "switched off by XLAYOUT_TRITON=off"
    try:
        x = torch.arange(3 * 66 * 80, dtype=torch.int32, device=device).view(3, 66, 80)
        odd = torch.arange(257 * 129, device=device).to(torch.uint8).view(257, 129)
        halves = x, x[:, :, 40:]
        turn = 0, 0, ((3, 66 * 80, 66 * 80), (66, 80, 1), (80, 1, 66))
        join = [(j, 0, (0, 40 * j, ((198, 80, 80), (40, 1, 1)))) for j in range(2)]
        shift = 0, 0, ((257, 129, 1), (129, 1, 257))
        for _ in range(2):  # as Triton finds what it compiled, and as it is kept here
            alone, shifted = (torch.zeros_like(z.mT).contiguous() for z in (x, odd))
            both = joined, turned = torch.zeros_like(x), torch.zeros_like(alone)
            copy(((0, 0, turn),), 4, [x.data_ptr()], [alone.data_ptr()], device)
            copy(((0, 0, shift),), 1, [odd.data_ptr()], [shifted.data_ptr()], device)
            copy((*join, (0, 1, turn)), 4, addresses_of(halves), addresses_of(both), device)
            made, wanted = (alone, turned, shifted, joined), (x.mT, x.mT, odd.mT, x)
            if not all(map(torch.equal, made, wanted)):
                return "a trial came out wrong"
    except Exception as error:  # noqa: BLE001 -- whatever it is, torch can copy
        return (str(error) or type(error).__name__).partition("\n")[0]
    return ""


def copy(
    moves: Moves,
    itemsize: int,
    sources: Sequence[int],
    targets: Sequence[int],
    device: torch.device,
) -> bool:
    """Whether all moves are made between addresses on a device; some have too many axes."""
    found = _prepared(
        moves, itemsize, tuple(map(alignment, sources)), tuple(map(alignment, targets))
    )
    if found is None:
        return False
    made, tables, distances = found
    if not made.launches:
        return True
    # The launch says where the first ones are, and the ends how far the others are from them.
    source, target = sources[0], targets[0]
    apart = *[x - source for x in sources], *[z - target for z in targets]
    here = stream(device)
    with on(device):
        table = kept(tables, (device, here), device, lambda: made.words)
        ends = kept(distances, (device, here, apart), device, lambda: made.ends(apart))
        launch(made, table, ends, source, target)
    return True


def kept(
    known: Uploads, key: Hashable, device: torch.device, words: Callable[[], array[int]]
) -> Any:
    """What was uploaded under a key before, or else these words now; the key names the stream.

    Uploaded and read on one stream: nobody waits for it, and letting go of it is safe.
    """
    found = known.get(key)
    if found is None:
        if len(known) == TABLES:
            known.clear()
        found = known[key] = uploaded(words(), device)
    return found


def _moved(moves: Moves, arrays: Sequence[Any], outputs: Sequence[Any]) -> bool:
    device = outputs[0].device
    return not why_not(device) and copy(
        moves, arrays[0].itemsize, addresses_of(arrays), addresses_of(outputs), device
    )


@lru_cache(4096)
def _prepared(
    moves: Moves, itemsize: int, inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> tuple[Plan, Uploads, Uploads] | None:
    """The plan of some moves, and its uploads: tables by stream, ends by stream and distances."""
    made = planned((moves, itemsize, inputs, outputs))
    return None if made is None else (made, {}, {})


def addresses_of(xs: Sequence[Any]) -> list[int]:
    """Where the memory of each begins."""
    return [x.data_ptr() for x in xs]


def uploaded(words: array[int], device: torch.device) -> Any:
    """The words on a device for the current stream, in order with its other work."""
    host = words_of(words)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host


def words_of(words: array[int]) -> Any:
    """The words as a tensor on the host."""
    if words:
        return torch.frombuffer(words, dtype=torch.int64)
    return torch.empty(0, dtype=torch.int64, device="cpu")


def stream(device: torch.device) -> int:
    """The number of the current stream."""
    # What `torch.cuda.current_stream` makes an object of, which takes ten times as long.
    return torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else 0


_nowhere = nullcontext()


def on(device: torch.device) -> Any:
    """A context in which a device is the current one."""
    if device.type != "cuda" or torch.cuda.current_device() == device.index:
        return _nowhere
    return torch.cuda.device(device)


_one_move = lru_cache(4096)(one_move)


def is_closed(*xs: Any) -> bool:
    """Whether a gate is closed for a call on these."""
    if not memory.watched() and all(map(_plain, xs)):
        return GATES["capture"](xs[0])  # the one that is left; to ask each takes 3 us a tensor
    for gate, closed in GATES.items():
        for x in xs[:1] if gate in _OF_THE_CALL else xs:
            if closed(x):
                return True
    return False


def _plain(x: Any) -> bool:
    return memory.plain(x) and _there(x) and not x.requires_grad
