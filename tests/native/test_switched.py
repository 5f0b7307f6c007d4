"""Inside `xl.native(False)` large copies are the frameworks' own, whatever ran before or will."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xlayout as xl
import xlayout_native

pytestmark = pytest.mark.skipif(not xlayout_native.available, reason="there is no kernel")

SIDE = 514
MAKE: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.randn(SIDE, SIDE),
    "numpy": lambda: np.random.default_rng(0).random((SIDE, SIDE), np.float32),
}
FORMS: dict[str, Callable[[Any], Any]] = {
    "fresh": xl.matrix_transpose,
    "out=": lambda x: xl.matrix_transpose(x, out=x + 1),
    "donate=True": lambda x: xl.matrix_transpose(x, donate=True),
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The runs of the kernel, which take place."""
    asked: list[Any] = []
    for name in ("run", "run_in_place"):
        own = getattr(xlayout_native, name)
        monkeypatch.setattr(xlayout_native, name, lambda *a, own=own: (asked.append(a), own(*a))[1])
    return asked


CASES = [(f, form) for f in MAKE for form in FORMS if (f, form) != ("numpy", "donate=True")]


@pytest.mark.parametrize(("framework", "form"), CASES)
@pytest.mark.parametrize("first", [True, False])
def test_each_call_asks_the_switch(framework: str, form: str, first: bool, runs: list[Any]) -> None:
    op = FORMS[form]
    for on in (first, not first, first, not first):
        x = MAKE[framework]()
        want = np.asarray(x).T.copy()
        runs.clear()
        with xl.native(on):
            made = op(x)
        assert bool(runs) == on
        assert np.array_equal(np.asarray(made), want)
