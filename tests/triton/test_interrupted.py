"""A write that is interrupted is one of which autograd knows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from xlayout_torch import cuda, launches
from xlayout_torch.batch import Batch


@pytest.mark.usefixtures("anywhere")
def test_a_write_that_a_signal_ends_is_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_given: Any) -> None:
        raise TimeoutError("now")  # as a handler of signals may

    monkeypatch.setattr(cuda, "_moved", ended)
    monkeypatch.setattr(launches, "launch", ended)
    out = torch.zeros(4)
    runs = lambda: cuda.move((), [out], [out]), Batch(None, None, None, [out], [out]).run  # type: ignore[arg-type]
    for writes, run in enumerate(runs, 1):
        with pytest.raises(TimeoutError, match=r"^now$"):
            run()
        assert out._version == writes
