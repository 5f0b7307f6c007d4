"""Inside `xl.native(False)` large copies are the frameworks' own, whatever runs before or after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xlayout as xl
import xlayout_native
from tests.table import by_table

pytestmark = pytest.mark.skipif(not xlayout_native.available, reason="there is no kernel")

MAKE: dict[str, Callable[[int], Any]] = {
    "torch": lambda side: torch.randn(side, side),
    "numpy": lambda side: np.random.default_rng(0).random((side, side), np.float32),
}
FORMS: dict[str, Callable[[Any], Any]] = {
    "fresh": xl.matrix_transpose,
    "out=": lambda x: xl.matrix_transpose(x, out=x + 1),
    "donate=True": lambda x: xl.matrix_transpose(x, donate=True),
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The runs of the kernel; they do take place."""
    asked: list[Any] = []
    for name in ("run", "run_arrays", "run_in_place"):
        own = getattr(xlayout_native, name)
        monkeypatch.setattr(xlayout_native, name, lambda *a, own=own: (asked.append(a), own(*a))[1])
    return asked


CASES = [(f, form) for f in MAKE for form in FORMS if (f, form) != ("numpy", "donate=True")]


@pytest.mark.parametrize(("framework", "form"), CASES)
@pytest.mark.parametrize("first", [True, False])
def test_each_call_asks_the_switch(framework: str, form: str, first: bool, runs: list[Any]) -> None:
    op = FORMS[form]
    for on in (first, not first, first, not first):
        x = MAKE[framework](514)
        want = np.asarray(x + 0).T.copy()  # torch considers memory shared once numpy has seen it
        runs.clear()
        with xl.native(on):
            made = op(x)
        assert bool(runs) == on
        assert np.array_equal(np.asarray(made), want)


SMALL = [
    xl.regroup.layout((21, 21), sizes=(3, 6, 12), groups=3),
    xl.fuse_qkv.layout((21, 21), (21, 21), (21, 21), heads=3, kv_heads=3),
]  # of this test alone


@pytest.mark.parametrize("framework", MAKE)
@pytest.mark.parametrize("layout", SMALL, ids=["one array", "several"])
def test_small_calls_ask_it_too(layout: xl.Layout, framework: str, runs: list[Any]) -> None:
    for on in (True, False, True):
        xs = [MAKE[framework](21) for _ in layout.in_shapes]
        runs.clear()
        with xl.native(on):
            made = layout(*xs)
        assert bool(runs) == on
        (wanted,) = by_table(layout, [np.asarray(x) for x in xs])
        assert np.array_equal(np.asarray(made), wanted)
