"""What figures depend on is recorded, thread counts are kept to, and the peak of memory is seen."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.house.tree import python
from xlayout.bench.machine import machine, processors, use_threads
from xlayout.bench.peak import peak_of

MB = 1 << 20


def test_the_machine_is_told_with_all_versions() -> None:
    told = machine(2)
    assert {"cpu", "cores", "python", "torch", "jax", "numpy", "einops", "copy kernel"} < set(told)
    assert told["numpy"] == np.__version__
    assert told["threads"] == "2"


@pytest.mark.parametrize("count", [0, 10_000])
def test_threads_that_are_not_there_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=rf"threads: {count}; this machine has 1 to \d+"):
        use_threads(count)


def test_one_thread_is_one_for_everybody() -> None:
    pytest.importorskip("torch")
    code = (
        "from xlayout.bench.machine import processors, use_threads; use_threads(1); "
        "import torch, xlayout_native as n; "
        "print(torch.get_num_threads(), n.get_threads() if n.available else 1, processors())"
    )
    torch_threads, kernel_threads, left = python(code).split()
    assert (torch_threads, kernel_threads) == ("1", "1")
    assert left == "1" or sys.platform != "linux" or processors() == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is reset through /proc")
def test_memory_that_was_let_go_counts_and_what_was_there_does_not() -> None:
    there = np.ones(64 * MB, np.uint8)

    def call() -> np.ndarray:
        gone = np.ones(96 * MB, np.uint8)
        made = np.ones(64 * MB, np.uint8)
        del gone
        return made

    peak = peak_of(call, lambda _made: None)
    assert peak is not None
    assert 155 * MB < peak < 170 * MB
    nothing = peak_of(lambda: there, lambda _made: None)
    assert nothing is not None
    assert nothing < 4 * MB
