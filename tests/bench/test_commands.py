"""The separate benchmarks refuse what they cannot measure, and a rank that fails is reported."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentTypeError

import pytest

from bench.report import RESULTS, count
from bench.sharding_seconds import measured


@pytest.mark.parametrize("text", ["0", "-3", "few", "1.5"])
def test_what_is_no_number_to_count_with_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"{text}; wanted a whole number from 1 up"):
        count(text)


def test_nothing_to_measure_is_refused() -> None:
    command = [sys.executable, "-m", "bench.memory", "--mb", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "argument --mb: 0; wanted a whole number from 1 up" in ran.stderr


@pytest.mark.slow
def test_a_rank_that_fails_is_named_at_once() -> None:
    pytest.importorskip("torch")
    with pytest.raises(AssertionError, match=r"(?s)rank \d:.*ShapeError"):
        measured((3, 4))  # which are not as long as the ranks' parts together


SMALL = {
    "exchange": (["--tensors", "2", "--rounds", "1"], "exchange, all shared"),
    "porting": (["--layers", "1", "--rounds", "1"], "a checkpoint of 0."),
}


@pytest.mark.parametrize("name", ["exchange", pytest.param("porting", marks=pytest.mark.slow)])
def test_a_small_run_is_not_kept_as_the_results(name: str) -> None:
    kept = RESULTS / f"{name}.json"
    before = kept.read_bytes()
    options, title = SMALL[name]
    command = [sys.executable, "-m", f"bench.{name}", *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert title in ran.stdout, ran.stderr
    assert kept.read_bytes() == before
