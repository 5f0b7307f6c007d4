"""Launches: a plan for the Triton kernel, started on a device's current stream with its tables."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache
from typing import Any

import torch

from xlayout_triton.plan import ALONE, FIRST, FURTHER, Launch, Moves, Plan, alignment, planned
from xlayout_triton.side import VECTOR
from xlayout_triton.uncompiled import CompileError, reason_of

__all__ = [
    "TABLES",
    "Start",
    "Uploads",
    "addresses_of",
    "copy",
    "interprets",
    "kept",
    "launch",
    "on",
    "prepared",
    "ready",
    "started",
    "stream",
    "uploaded",
    "words_of",
]

TABLES = 16
"""Uploads that a plan keeps: its table, for as many streams, and as many lists of ends."""

ALONG = 1 << 16
"""Bytes up to which CUDA takes host memory along with a command, which is faster than a fetch."""

Start = Callable[[int, int], None]
"""(source, target) -> None: starts a plan; these addresses are added to its ends."""

Check = Callable[[Plan, torch.device], None]
"""Raises an error if a plan is not to be used on a device."""

Uploads = dict[tuple[torch.device, int, bytes], Any]
"""The table of a plan, by device and stream; or ends, by their bytes too."""


def copy(
    moves: Moves,
    itemsize: int,
    sources: Sequence[int],
    targets: Sequence[int],
    device: torch.device,
    check: Check | None = None,
) -> bool:
    """Whether all moves are made between addresses on a device; some have too many axes.

    Raises:
        CompileError: as `ready`.
    """
    # A launch is told where the first ones are, rounded down to a vector, and the ends how far all
    # are from there: so a call on other memory mostly finds the ends of an earlier one.
    source, target = sources[0] & -VECTOR, targets[0] & -VECTOR
    inputs, outputs = tuple([x - source for x in sources]), tuple([z - target for z in targets])
    with on(device):
        start = ready(moves, itemsize, inputs, outputs, device, stream(device), check)
        if start is None:
            return False
        start(source, target)
    return True


@lru_cache(4096)
def ready(
    moves: Moves,
    itemsize: int,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    device: torch.device,
    current: int,
    check: Check | None,
) -> Start | None:
    """What starts the plan of some moves, with its table and ends; None if it has too many axes.

    Raises:
        CompileError: as `started`; and what `check` raises.
    """
    found = prepared(moves, itemsize, *[tuple(map(alignment, xs)) for xs in (inputs, outputs)])
    if found is None:
        return None
    made, tables = found
    if check is not None:
        check(made, device)
    table = kept(tables, device, current, lambda: made.words)
    return started(made, table, uploaded(made.ends((*inputs, *outputs)), device))


@lru_cache(4096)
def prepared(
    moves: Moves, itemsize: int, inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> tuple[Plan, Uploads] | None:
    """The plan of some moves, and its tables; inputs and outputs are alignments of addresses."""
    made = planned((moves, itemsize, inputs, outputs))
    return None if made is None else (made, {})


def started(made: Plan, table: Any, ends: Any) -> Start:
    """What starts a plan whose table and ends are on the current device, on the current stream.

    All is looked up here that does not change from call to call: a host with many small launches
    to make has less time for each than a device.

    Raises:
        CompileError: there is no kernel for one of its launches; none is started.
    """
    device, current = table.device, stream(table.device)
    chained = _chains(device)
    places = table.data_ptr(), ends.data_ptr()  # of a tensor's, Triton asks the driver every time
    calls = []
    for place, one in enumerate(made.launches):
        link = (FURTHER if place else FIRST) if chained else ALONE
        numbers = one.first, one.jobs or 0, one.group
        fixed = one.jobs is not None, link, one.tile
        kernel = _kernels.get((fixed, device))
        if kernel is None:  # Triton's own search for a known one takes half as long as a launch
            first = _first(one, (table, ends, 0, 0, *numbers, *fixed), link)
            kernel = _kernels[fixed, device] = first
        where = (table, ends) if isinstance(kernel, _Interpreted) else places
        calls.append((kernel[one.programs, 1, 1], where, (*numbers, *fixed)))

    def start(source: int, target: int, _kept: Any = (table, ends)) -> None:
        for run, where, rest in calls:
            run(*where, source, target, *rest, stream=current)  # or Triton would ask for it again

    return start


def launch(made: Plan, table: Any, ends: Any) -> None:
    """Start a plan once, between the addresses in its ends.

    Raises:
        CompileError: as `started`.
    """
    started(made, table, ends)(0, 0)


_kernels: dict[Any, Any] = {}
"""((whether it has several pieces, link, tile), device) -> kernel."""

_refused: dict[Any, str] = {}
"""The same of those that there is no kernel for -> why."""


def _first(one: Launch, arguments: tuple[Any, ...], link: int) -> Any:
    """The kernel for launches of a new kind, compiled and loaded; an interpreter does neither."""
    kind = arguments[7:], arguments[0].device
    if kind not in _refused:
        try:
            return _compiled(one, arguments, link)
        except Exception as error:  # noqa: BLE001 -- whatever it is, nothing was started
            _refused[kind] = reason_of(error)
    raise CompileError(_refused[kind])


def _compiled(one: Launch, arguments: tuple[Any, ...], link: int) -> Any:
    from xlayout_triton.copy import copy_tiles

    if interprets():
        return _Interpreted()
    early = {} if link == ALONE else {"launch_pdl": True}
    grid = one.programs, 1, 1
    kernel = copy_tiles.warmup(*arguments, grid=grid, **one.tile.options, **early)
    kernel[grid]  # loads it
    return kernel


class _Interpreted:
    """Launches that Triton interprets, which have no stream."""

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., Any]:
        from xlayout_triton.copy import copy_tiles

        return lambda *arguments, stream: copy_tiles[grid](*arguments)  # noqa: ARG005


@cache
def _chains(device: torch.device) -> bool:
    """Whether launches on a device can be a chain: NVIDIA's can, from Hopper on."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


def interprets() -> bool:
    """Whether Triton does not compile the kernel, but runs it on the host, on memory there."""
    from triton import JITFunction

    from xlayout_triton.copy import copy_tiles

    return not isinstance(copy_tiles, JITFunction)


def addresses_of(xs: Sequence[Any]) -> list[int]:
    """Where the memory of each begins."""
    return [x.data_ptr() for x in xs]


def kept(
    known: Uploads,
    device: torch.device,
    current: int,
    words: Callable[[], array[int]],
    content: bytes = b"",
) -> Any:
    """What was uploaded for the current stream before, or else these words now.

    Uploaded and read on one stream: nobody waits for it, and letting go of it is safe.
    """
    found = known.get((device, current, content))
    if found is None:
        if len(known) >= TABLES:  # or more, where threads met here
            known.clear()
        found = known[device, current, content] = uploaded(words(), device)
    return found


def uploaded(words: array[int], device: torch.device) -> Any:
    """The words on a device for the current stream, in order with its other work."""
    host = words_of(words)
    if device.type != "cuda":
        return host
    if host.nbytes > ALONG:
        host = host.pin_memory()  # or the host might wait
    return host.to(device, non_blocking=True)


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
    if device.type != "cuda" or torch._C._cuda_getDevice() == device.index:
        return _nowhere
    return torch.cuda.device(device)
