"""The accelerator's questions can be asked anywhere: each alone, and a crash is an answer too."""

from __future__ import annotations

import pytest

from bench import gpu_ask
from tests.devices import HOST_DEVICES

ON_CPU = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": f"--xla_force_host_platform_device_count={HOST_DEVICES}",
    "CUDA_VISIBLE_DEVICES": "",
}


def test_a_case_is_answered_in_a_process_of_its_own() -> None:
    answer = gpu_ask.ask("pointers_both_ways", ON_CPU)  # a promise; a question may end in a crash
    assert answer == {"verdict": "ok", "finding": "14 dtypes on cpu:0"}


@pytest.mark.parametrize(
    ("code", "verdict", "finding"),
    [
        ("import os; os.abort()", "CRASHES", "SIGABRT"),
        ("raise SystemExit('no such device')", "FAILS", "no such device"),
        ("pass", "FAILS", "no message"),
    ],
)
def test_the_end_of_a_process_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, code: str, verdict: str, finding: str
) -> None:
    monkeypatch.setattr(gpu_ask, "ASK", code)
    assert gpu_ask.ask("any", ON_CPU) == {"verdict": verdict, "finding": finding}


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_ask, "ASK", "print('so far', flush=True); import time; time.sleep(60)")
    assert gpu_ask.ask("any", ON_CPU, 3) == {"verdict": "HANGS", "finding": "no answer in 3 s"}


def test_what_was_printed_before_a_time_out_is_kept() -> None:
    code = "print('so far', flush=True); import time; time.sleep(60)"
    lines, how = gpu_ask.lines_of(["-c", code], {}, 3)
    assert lines == ["so far"]
    assert how == {"verdict": "HANGS", "finding": "no answer in 3 s"}
