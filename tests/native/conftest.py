"""What the kernel's tests share: every instruction set in turn, and thresholds put back."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

import xlayout_native

COMPILED = (
    "copy",
    "deal",
    "dense",
    "frameworks",
    "gates",
    "pieces",
    "place",
    "places",
    "threads",
    "tiles",
    "torch_autograd",
    "torch_operation",
    "torch_primitive",
    "turn_bytes",
    "wide",
    "windows",
)
COMPILED_ONLY = [f"test_{name}.py" for name in COMPILED]
collect_ignore = [] if xlayout_native.available else COMPILED_ONLY
CALLED = xlayout_native.available and xlayout_native.ffi_handler() and find_spec("jax")
collect_ignore_glob = [] if CALLED else ["test_jax_*.py"]

ISAS = xlayout_native.get_isas() if xlayout_native.available else []
LINES = [isa for isa in ISAS if isa.startswith("avx")]
if "avx512vbmi" in ISAS:
    ISAS.remove("avx512")  # differs only in what `test_turn_bytes` tests
USUAL = (8 << 20, 4 << 20)


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Force each instruction set of this machine in turn."""
    usual = xlayout_native.get_isa()
    xlayout_native.set_isa(request.param)
    yield request.param
    xlayout_native.set_isa(usual)


@pytest.fixture(params=LINES)
def lines(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each instruction set that writes whole lines, with everything streamed and shared."""
    usual = xlayout_native.get_isa()
    xlayout_native.set_isa(request.param)
    xlayout_native.set_thresholds(0, 0)
    yield
    xlayout_native.set_isa(usual)
    xlayout_native.set_thresholds(*USUAL)


@pytest.fixture
def intel() -> Iterator[None]:
    """In the orders that are best on Intel's processors."""
    usual = xlayout_native.get_intel()
    xlayout_native.set_intel(True)
    yield
    xlayout_native.set_intel(usual)


@pytest.fixture(params=[False, True], ids=["another's", "Intel's"])
def maker(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the orders that are best on Intel's processors, and on others."""
    intel = xlayout_native.get_intel()
    xlayout_native.set_intel(request.param)
    yield
    xlayout_native.set_intel(intel)


@pytest.fixture(params=[USUAL, (0, 0)], ids=["cached", "streamed"])
def thresholds(request: pytest.FixtureRequest) -> Iterator[None]:
    """As shipped, and with everything streamed and shared between threads, however small."""
    xlayout_native.set_thresholds(*request.param)
    yield
    xlayout_native.set_thresholds(*USUAL)


@pytest.fixture
def prepared_widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The element widths of plans prepared from now on, in order."""
    widths: list[int] = []
    prepare = xlayout_native.prepare

    def counted(moves: Any, width: int, *ends: int) -> Any:
        widths.append(width)
        return prepare(moves, width, *ends)

    monkeypatch.setattr(xlayout_native, "prepare", counted)
    return widths
