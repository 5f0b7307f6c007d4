"""A kind of launch is looked up in Triton once, and then started as it was compiled."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import torch

from xlayout_torch import cuda
from xlayout_triton.plan import Plan, plan
from xlayout_triton.tile import cut


class Kernel:
    """Stands for what Triton compiled: it tells how it was started."""

    def __init__(self) -> None:
        self.started: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments: self.started.append((grid, *arguments))


def runs(count: int, size: int = 1 << 20) -> Plan:
    """A plan of so many runs."""
    one = cut(0, 0, ((size, 1, 1),), 4, (16, 16))
    assert one is not None
    return plan([(one, 2 * k, 2 * k + 1) for k in range(count)])


@pytest.fixture
def firsts(monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """The kernels of launches that were the first of their kind."""
    found: list[Kernel] = []

    def first(*_args: Any) -> tuple[Kernel, tuple[str, ...]]:
        found.append(Kernel())
        return found[-1], ("fixed",)

    monkeypatch.setattr(cuda, "_first", first)
    monkeypatch.setattr(cuda, "_kernels", {})
    return found


def test_the_next_of_a_kind_is_started_as_it_was_compiled(firsts: list[Kernel]) -> None:
    table, ends, made, longer = torch.zeros(4), torch.zeros(2), runs(1), runs(1, 1 << 21)
    for one, source in ((made, 16), (made, 32), (longer, 48)):
        cuda.launch(one, table, ends, source, 64)
    (kernel,) = firsts
    (first,), (second,) = made.launches, longer.launches
    assert kernel.started == [
        ((first.programs, 1, 1), table, ends, 32, 64, first.first, 0, first.group, "fixed"),
        ((second.programs, 1, 1), table, ends, 48, 64, second.first, 0, second.group, "fixed"),
    ]


def test_other_tiles_several_pieces_streams_and_devices_are_other_kinds(
    firsts: list[Kernel],
) -> None:
    turned = cut(0, 0, ((512, 1, 512), (512, 512, 1)), 4, (16, 16))
    assert turned is not None
    table = torch.zeros(4)
    for made in (runs(1), runs(2), runs(1, 1 << 25), plan([(turned, 0, 1)])):
        cuda.launch(made, table, table)
    cuda.launch(runs(1), *[torch.zeros(4, device="meta")] * 2)
    assert len(firsts) == 5
    assert not any(kernel.started for kernel in firsts)


def test_a_trial_starts_what_was_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        def __getitem__(self, _grid: Any) -> Any:
            raise RuntimeError("started in another way")

    def first(_one: Any, arguments: tuple[Any, ...]) -> tuple[Any, tuple[()]]:
        _, _, source, target, *_ = arguments
        size = 4 * 3 * 66 * 80
        turned = not second
        second.append(turned)
        x = np.ctypeslib.as_array(ctypes.cast(source, ctypes.POINTER(ctypes.c_int32)), (3, 66, 80))
        ctypes.memmove(target, (x.transpose(0, 2, 1) if turned else x).tobytes(), size)
        return Other(), ()

    second: list[bool] = []
    monkeypatch.setattr(cuda, "_first", first)
    monkeypatch.setattr(cuda, "_kernels", {})
    cuda.why_not.cache_clear()
    assert cuda.why_not(torch.device("cpu")) == "started in another way"
    cuda.why_not.cache_clear()
    assert second == [True, False]


def test_what_an_interpreter_runs_is_no_kernel_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(cuda, "_kernels", {})
    monkeypatch.setattr(cuda, "_first", lambda *args: (asked.append(args), ()))  # (None, ())
    for _ in range(2):
        cuda.launch(runs(1), torch.zeros(4), torch.zeros(2))
    assert len(asked) == 2
