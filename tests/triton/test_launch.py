"""A kind of launch is compiled once, and each is started as what was compiled for its kind."""

from __future__ import annotations

import ctypes
import gc
import weakref
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from tests.native.oracle import Buffer
from tests.triton.conftest import INTERPRETED, TRITON
from tests.triton.emulator import emulate
from tests.triton.stands import Kernel, kinds, runs
from xlayout_torch import cuda, launches
from xlayout_torch.batch import move_many
from xlayout_triton.plan import ALONE, FIRST, FURTHER
from xlayout_triton.uncompiled import CompileError

CPU = torch.device("cpu")


def test_each_of_a_kind_is_started_as_the_first_was_compiled(firsts: list[Kernel]) -> None:
    table, ends, made, longer = torch.zeros(4), torch.zeros(2), runs(1), runs(1, 1 << 21)
    for one, source in ((made, 16), (made, 32), (longer, 48)):
        launches.started(one, table, ends)(source, 64)
    (kernel,) = firsts
    where = table.data_ptr(), ends.data_ptr()
    (first,), (second,) = made.launches, longer.launches
    assert kernel.started == [
        ((one.programs, 1, 1), *where, source, 64, 0, 0, 1, False, ALONE, one.tile)
        for one, source in ((first, 16), (first, 32), (second, 48))
    ]


def test_what_is_started_again_keeps_its_uploads(firsts: list[Kernel]) -> None:
    """A launch is given no tensors, only where they lie."""
    uploads = torch.zeros(4), torch.zeros(2)
    where, known = [x.data_ptr() for x in uploads], [weakref.ref(x) for x in uploads]
    start = launches.started(runs(1), *uploads)
    del uploads
    gc.collect()
    assert None not in [seen() for seen in known]
    start(16, 32)
    assert [*firsts[0].started[0][1:3]] == where
    del start
    gc.collect()
    assert [seen() for seen in known] == [None, None]


def test_a_plan_without_a_kernel_is_not_started_in_part(
    firsts: list[Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, made = torch.zeros(4), kinds("run", "turned")
    launches.launch(kinds("turned"), table, table)  # which is the first launch of both

    def fails(*_args: Any) -> None:
        raise CompileError("no such instruction")

    monkeypatch.setattr(launches, "_first", fails)
    with pytest.raises(CompileError, match=r"^no such instruction$"):
        launches.launch(made, table, table)
    assert [len(kernel.started) for kernel in firsts] == [1]


def test_other_tiles_several_pieces_and_devices_are_other_kinds(firsts: list[Kernel]) -> None:
    table = torch.zeros(4)
    for made in (runs(1), runs(2), kinds("turned")):
        launches.launch(made, table, table)
    launches.launch(runs(1), *[torch.zeros(4, device="meta")] * 2)
    assert [len(kernel.started) for kernel in firsts] == [1] * 4
    assert [kernel.started[0][6] for kernel in firsts] == [0, runs(2).launches[0].jobs, 0, 0]


@pytest.mark.parametrize("chains", [False, True])
def test_a_trial_starts_all_links_of_a_chain(chains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are any."""

    class Copies:
        def __getitem__(self, _grid: Any) -> Any:
            return self.start

        def start(
            self, _table: int, ends: int, source: int, target: int, *rest: Any, **_: Any
        ) -> None:
            number, _jobs, _group, several, link, _tile = rest
            links.append(link)
            target += ctypes.cast(ends, ctypes.POINTER(ctypes.c_int64))[2 * number + 1]
            there = ctypes.cast(source, ctypes.POINTER(ctypes.c_int32))
            x = np.ctypeslib.as_array(there, (3, 66, 80))
            ctypes.memmove(target, (x if several else x.swapaxes(-1, -2)).tobytes(), x.nbytes)

    links: list[int] = []
    monkeypatch.setattr(launches, "_first", lambda *_args: Copies())
    monkeypatch.setattr(launches, "_kernels", {})
    monkeypatch.setattr(launches, "_chains", lambda _device: chains)
    assert cuda.tried.__wrapped__(CPU) == ""
    assert links == ([FIRST, FIRST, FURTHER] if chains else [ALONE] * 3)


def test_a_table_is_made_on_the_host_whatever_device_is_the_default() -> None:
    with torch.device("meta"):
        assert {launches.words_of(array("q", words)).device.type for words in ([], [1])} == {"cpu"}


@pytest.mark.parametrize("more", [0, 1])
def test_uploads_stay_few_also_if_threads_added_some_at_once(more: int) -> None:
    known = {k: torch.zeros(1) for k in range(launches.TABLES + more)}
    found = launches.kept(known, CPU, 0, lambda: array("q", [7]))
    assert [*known.values()] == [found]


# -- where -----------------------------------------------------------------------------------------


def test_the_stream_is_the_current_one_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of the device that is current."""
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda index: 100 + index, raising=False
    )
    assert [launches.stream(torch.device("cuda", k)) for k in range(2)] == [100, 101]
    assert launches.stream(CPU) == 0


def test_a_device_becomes_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is not: Triton starts what it compiled on the current device."""
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1, raising=False)
    other = launches.on(torch.device("cuda", 0))
    assert (type(other), other.idx) == (torch.cuda.device, 0)
    for device in (torch.device("cuda", 1), CPU):
        assert type(launches.on(device)) is nullcontext


@pytest.mark.parametrize("several", [False, True])
def test_that_of_the_outputs_is_while_a_plan_is_started(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    current: list[torch.device | None] = [None]
    seen: list[torch.device | None] = []

    @contextmanager
    def on(device: torch.device) -> Iterator[None]:
        current[0] = device
        yield
        current[0] = None

    monkeypatch.setattr(cuda, "why_not", lambda _device: "")
    monkeypatch.setattr(launches, "on", on)
    monkeypatch.setattr(launches, "started", lambda *_made: lambda *_ends: seen.append(current[0]))
    x, y = torch.zeros(4, 4), torch.empty(4, 4)
    moves = ((0, 0, (0, 0, ((4, 1, 4), (4, 4, 1)))),)
    if several:
        assert move_many([(moves, [x], [y])])
    else:
        assert cuda.copy(moves, 4, [x.data_ptr()], [y.data_ptr()], y.device)
    assert seen == [CPU]


@pytest.mark.parametrize("batch", [False, True])
def test_a_plan_is_for_the_addresses_that_it_runs_on(
    batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or vectors would lie across those that a GPU can move, which an emulator refuses."""
    sources = [Buffer(2000, shift=k, fill=np.random.default_rng(k)) for k in (0, 1, 2, 4, 8)]
    targets = [Buffer(2000, shift=k) for k in (0, 8, 2, 0, 4)]
    apart = [buffer for pair in zip(sources, targets, strict=True) for buffer in pair]
    order = apart if batch else [*sources, *targets]
    monkeypatch.setattr(launches, "started", lambda made, *_: lambda *_: emulate(made, order))
    monkeypatch.setattr(cuda, "why_not", lambda _device: "")
    xs, ys = ([torch.from_numpy(b.bytes) for b in some] for some in (sources, targets))
    run = 0, 0, ((2000, 1, 1),)
    if batch:
        assert move_many([(((0, 0, run),), [x], [y]) for x, y in zip(xs, ys, strict=True)])
    else:
        moves = tuple((k, k, run) for k in range(5))
        assert cuda.copy(moves, 1, launches.addresses_of(xs), launches.addresses_of(ys), CPU)
    assert all(map(torch.equal, xs, ys))


# -- chains ----------------------------------------------------------------------------------------

needs_triton = pytest.mark.skipif(not TRITON, reason="Triton is not installed")


@needs_triton
@pytest.mark.parametrize(
    ("names", "chains", "wanted"),
    [
        (("run", "turned"), True, [(FIRST, True), (FURTHER, True)]),
        (("run", "turned"), False, [(ALONE, False), (ALONE, False)]),
        (("run",), True, [(FIRST, True)]),
    ],
)
def test_launches_are_started_before_the_one_before_has_ended(
    names: tuple[str, ...],
    chains: bool,
    wanted: list[tuple[int, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the device can."""
    from xlayout_triton import copy

    class Compiles:
        """Stands for the kernel: it tells which link it would be, and whether it starts early."""

        def warmup(self, *arguments: Any, launch_pdl: bool = False, **options: Any) -> Kernel:
            _several, link, tile = arguments[7:]
            assert options == {"grid": (options["grid"][0], 1, 1), **tile.options}
            compiled.append((link, launch_pdl))
            return Kernel()

    compiled: list[tuple[int, bool]] = []
    monkeypatch.setattr(copy, "copy_tiles", Compiles())
    monkeypatch.setattr(launches, "interprets", lambda: False)
    monkeypatch.setattr(launches, "_kernels", {})
    monkeypatch.setattr(launches, "_chains", lambda _device: chains)
    launches.launch(kinds(*names), torch.zeros(4), torch.zeros(4))
    assert compiled == wanted


def test_links_of_a_chain_are_other_kinds(
    firsts: list[Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launches, "_chains", lambda _device: True)
    table = torch.zeros(4)
    for names in (("run", "turned"), ("turned", "run"), ("run",), ("run", "turned")):
        launches.launch(kinds(*names), table, table)
    # tiles that are turned are larger, and so their launch is the first of both
    assert [len(kernel.started) for kernel in firsts] == [3, 3, 1]


@pytest.mark.parametrize(
    ("capability", "hip", "wanted"),
    [((9, 0), None, True), ((12, 0), None, True), ((8, 9), None, False), ((9, 4), "6.4", False)],
)
def test_nvidias_devices_chain_from_hopper_on(
    capability: tuple[int, int], hip: str | None, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    chains = launches._chains.__wrapped__
    assert chains(torch.device("cuda", 0)) is wanted
    assert chains(CPU) is False


# -- an interpreter --------------------------------------------------------------------------------


@needs_triton
def test_an_interpreter_starts_the_kernel_and_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from xlayout_triton import copy

    kernel = Kernel()
    monkeypatch.setattr(copy, "copy_tiles", kernel)
    monkeypatch.setattr(launches, "_kernels", {})
    for _ in range(2):
        launches.launch(runs(1), torch.zeros(4), torch.zeros(2))
    assert len(kernel.started) == 2


@needs_triton
def test_an_interpreter_is_kept_from_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take addresses there for the host's, and the process down."""
    from xlayout_triton import copy

    assert launches.interprets() is INTERPRETED
    monkeypatch.setattr(copy, "copy_tiles", object())  # which Triton has not compiled
    assert cuda.tried.__wrapped__(torch.device("cuda", 0)) == (
        "TRITON_INTERPRET has Triton run on the host, which reads no memory of a GPU"
    )
