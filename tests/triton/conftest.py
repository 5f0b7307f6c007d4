"""What the kernel runs on: a GPU, or Triton's interpreter on a CPU, which has to be asked for."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TRITON = importlib.util.find_spec("triton") is not None

collect_ignore = [] if TRITON else ["driven.py", "ptx.py", "permuting.py"]
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["*.py"]


@pytest.fixture(scope="session")
def device() -> str:
    """Where tensors for the kernel are."""
    if not TRITON:
        pytest.skip("Triton is not installed")
    if INTERPRETED:
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU; with TRITON_INTERPRET=1 the kernel runs on a CPU")
    return "cuda:0"


OPEN = {"device": lambda _x: False, "capture": lambda _x: False}
"""Gates that keep every tensor away where there is no GPU, opened."""


def open_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tensors pass for the kernel's wherever they are."""
    from xlayout_torch import cuda

    for gate, closed in OPEN.items():
        monkeypatch.setitem(cuda.GATES, gate, closed)
    monkeypatch.setattr(cuda, "_is_cuda", lambda _x: True)


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do, and however small they are."""
    from xlayout_torch import cuda

    open_gates(monkeypatch)
    monkeypatch.setattr(cuda, "SMALL", 0)
    monkeypatch.setattr(cuda, "SEVERAL", 0)


@pytest.fixture(autouse=True)
def nothing_is_ready() -> Iterator[None]:
    """No launch is left that another test prepared, perhaps of what only stands for a kernel."""
    from xlayout_torch import launches

    launches.ready.cache_clear()
    yield
    launches.ready.cache_clear()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was started, as (plan, table, ends, source, target); nothing runs."""
    from xlayout_torch import launches

    found: list[Any] = []
    monkeypatch.setattr(
        launches, "started", lambda *made: lambda *where: found.append((*made, *where))
    )
    return found


@pytest.fixture
def firsts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The kernels of launches that were the first of their kind."""
    from tests.triton.stands import Kernel
    from xlayout_torch import launches

    found: list[Kernel] = []

    def first(*_args: Any) -> Kernel:
        found.append(Kernel())
        return found[-1]

    monkeypatch.setattr(launches, "_first", first)
    monkeypatch.setattr(launches, "_kernels", {})
    return found


@pytest.fixture
def copies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The copies that were asked for; none takes place."""
    from xlayout_torch import cuda

    request.getfixturevalue("anywhere")
    asked: list[Any] = []
    monkeypatch.setattr(cuda, "copy", lambda *args: not asked.append(args))
    monkeypatch.setattr(cuda, "why_not", lambda _device: "")
    return asked
