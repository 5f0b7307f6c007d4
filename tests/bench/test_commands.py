"""The separate benchmarks refuse what they cannot measure, and a rank that fails is reported."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from bench.report import RESULTS, count
from bench.sharding_seconds import measured


@pytest.mark.parametrize("text", ["0", "-3", "few", "1.5"])
def test_what_is_no_number_to_count_with_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"{text}; wanted a whole number from 1 up"):
        count(text)


@pytest.mark.parametrize(
    ("megabytes", "why"),
    [("0", "argument --mb: 0; wanted a whole number from 1 up"), ("8", "--mb: 8; wanted 64 or")],
)
def test_nothing_to_measure_is_refused(megabytes: str, why: str) -> None:
    command = [sys.executable, "-m", "bench", "memory", "--mb", megabytes]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert why in ran.stderr


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for module in ("torch", "safetensors", "tensorstore", "orbax"):
        pytest.importorskip(module)
    command = [sys.executable, "-m", "bench", "porting", "--folder", str(tmp_path / "absent")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert f"--folder: {tmp_path}/absent; wanted a folder that is there\n" in ran.stderr


@pytest.mark.slow
def test_a_rank_that_fails_is_named_at_once() -> None:
    pytest.importorskip("torch")
    with pytest.raises(AssertionError, match=r"(?s)rank \d:.*ShapeError"):
        measured((3, 4))  # which are not as long as the ranks' parts together


@pytest.mark.parametrize(
    ("name", "arguments", "title"),
    [
        ("exchange", ["--tensors", "2", "--rounds", "1"], "exchange, all shared"),
        ("overhead", ["--rounds", "1"], "microseconds per call on 1 KB"),
        pytest.param(
            *("porting", ["--layers", "1", "--rounds", "1"], "a checkpoint of 0."),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("loading", ["--layers", "1", "--rounds", "1"], "a DCP loaded by four ranks"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_small_run_is_not_kept_as_the_results(
    name: str, arguments: list[str], title: str
) -> None:
    kept = RESULTS / f"{name}.json"
    before = kept.read_bytes()
    command = [sys.executable, "-m", "bench", name, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert title in ran.stdout, ran.stderr
    assert kept.read_bytes() == before
