"""What is not installed has no rows in a table; what cannot be measured without it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.record import load

RUN = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        here = name.partition(".")[0] not in {absent}
        return super().find_spec(name, path, target) if here else None

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
from bench.__main__ import main
sys.exit(main({arguments}))
"""


def ran(*arguments: str, absent: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """A benchmark where these modules cannot be imported."""
    code = RUN.format(absent=absent, arguments=list(arguments))
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_framework_that_is_missing_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "grid.json"
    asked = ("grid", "--quick", "--op", "stack", "--out", str(path))
    found = ran(*asked, absent=("torch", "jax", "einops", "matplotlib"))
    assert found.returncode == 0, found.stderr
    assert {(op, framework) for op, framework, *_ in load(path).rows} == {("stack", "numpy")}
    assert "no plot: that takes matplotlib" in found.stdout


def test_calls_over_and_over_are_those_of_what_is_there() -> None:
    found = ran("overhead", "--op", "trim", "--rounds", "1", absent=("torch", "jax", "einops"))
    assert found.returncode in (0, 1), found.stderr  # 1: one round may well be over a limit
    table = found.stdout.partition("import xlayout")[0]
    assert [line.split()[:2] for line in table.splitlines()[-1:]] == [["trim", "numpy"]]


@pytest.mark.parametrize("module", ["overhead", "memory"])
def test_a_framework_that_is_missing_cannot_be_asked_for(module: str) -> None:
    found = ran(module, "--only", "torch", absent=("torch", "jax"))
    assert found.returncode == 2
    assert "error: --only: torch is not installed; there are numpy" in found.stderr


@pytest.mark.parametrize(
    ("name", "absent", "which"),
    [
        ("exchange", ("torch", "jax"), "torch and jax"),
        ("sharding", ("jax",), "jax"),
        ("grid", ("numpy",), "numpy"),
        ("compare", ("numpy",), "numpy"),
    ],
)
def test_what_needs_a_package_says_so(name: str, absent: tuple[str, ...], which: str) -> None:
    found = ran(name, absent=absent)
    assert found.returncode == 2
    assert found.stderr == f"bench: {name} needs {which}, which the extra `bench` brings\n"


def test_no_benchmark_needs_what_tests_need() -> None:
    found = ran("sharding", "--help", absent=("pytest", "hypothesis"))
    assert found.returncode == 0, found.stderr


def test_a_file_that_cannot_be_written_is_refused_before_a_row_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "grid.json"
    asked = ("grid", "--quick", "--op", "stack", "--out", str(path))
    found = ran(*asked, absent=("torch", "jax", "einops"))
    assert found.returncode == 2
    assert "--out names another file" in found.stderr
    assert "1/1" not in found.stderr
    assert "Traceback" not in found.stderr
