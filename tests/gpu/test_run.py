"""A run keeps what each part reported, however the part ended."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from bench.gpu import run as gpu_run
from bench.gpu.__main__ import conclude
from bench.gpu.here import Here
from bench.gpu.run import Run

FINE = {
    "question": "Does nothing.",
    "module": "bench.gpu.kernel",
    "part": "kernel",
    "on_cpu": True,
    "devices": 1,
    "alone": False,
    "environment": {},
}
CUDA = Here({"device": "a GPU", "devices": 1}, {"fine": FINE}, {})
CPU = Here({"device": "cpu", "devices": 1}, {"fine": FINE}, {})


def ran(part: str, here: Here = CPU, left: float = 100) -> Run:
    run = Run(here, time.monotonic() + left)
    run.part(part)
    return run


@pytest.fixture
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose part `state` is a program that ends as it is told."""
    monkeypatch.setattr(gpu_run, "LEAST", 1)
    monkeypatch.setitem(gpu_run._ON_GPU, "state", (["tests.gpu.program"], 5))
    monkeypatch.setitem(gpu_run._ON_CPU, "state", [request.param])
    return ran("state")


def ends(how: str) -> Any:
    return pytest.mark.parametrize("program", [how], indirect=True)


@ends("half")
def test_a_line_that_is_cut_off_costs_only_itself(program: Run) -> None:
    assert [row["part"] for row in program.rows] == ["state"]
    assert program.answers["state"]["verdict"] == "ok"
    assert (program.broken, program.unasked) == ([], [])


@ends("late")
def test_a_part_that_uses_up_its_time_is_late_and_keeps_its_rows(program: Run) -> None:
    assert len(program.rows) == 1
    assert program.answers["state"]["verdict"] == "LATE"
    assert (program.broken, program.unasked) == ([], ["the rest of state"])


@ends("wrong")
def test_a_wrong_answer_breaks_a_part_that_goes_on(program: Run) -> None:
    assert len(program.rows) == 3
    assert program.broken == ["state"]
    found = program.answers["state"]
    assert found["said"] == found["stderr"] == ["zip, xlayout: wrong answer"]


@ends("raises")
def test_what_a_program_said_is_recorded(program: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.broken == ["state"]
    found = program.answers["state"]
    assert re.fullmatch(r"1 rows in \d s  RuntimeError: no memory", found["finding"])
    assert any("in main" in line for line in found["stderr"])
    assert "in main" not in capsys.readouterr().out


@pytest.mark.parametrize("part", ["kernel", "speed", "tests"])
def test_a_run_without_time_is_not_one_in_which_all_holds(part: str) -> None:
    run = ran(part, CUDA, left=1)
    assert run.unasked == (["fine"] if part == "kernel" else [part])
    assert conclude(run, cuda=True) == 4
    assert conclude(run, cuda=False) == 3
    run.broken.append("it")
    assert conclude(run, cuda=True) == 1


def test_a_run_in_which_all_was_asked_ends_well() -> None:
    run = ran("kernel", Here({"device": "a GPU", "devices": 0}, {"fine": FINE}, {}))
    assert run.answers["fine"]["finding"] == "needs 1 devices"
    assert conclude(run, cuda=True) == 0


@pytest.mark.parametrize("part", ["calls", "promises", "jax", "questions"])
def test_without_jax_its_parts_are_left_out(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = ran(part, Here(CUDA.where, {}, {}, no_jax="ImportError: no"))
    assert capsys.readouterr().out.split(maxsplit=2)[1:] == [part, "no JAX: ImportError: no\n"]
    assert (run.answers, run.unasked) == ({}, [part])
    assert conclude(run, cuda=True) == 4


def test_the_tests_name_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_run, "_TESTED", "tests/gpu/failing.py")
    run = ran("tests")
    found = run.answers["tests"]
    assert run.broken == ["tests"]
    assert [line.partition(" - ")[0] for line in found["said"]] == [
        f"FAILED tests/gpu/failing.py::test_{name}" for name in ("it_fails", "it_fails_too")
    ]
    assert found["finding"].startswith("2 failed, 1 passed")
