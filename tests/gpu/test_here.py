"""The command says which framework is missing, and asks what can be asked without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT


def command(*arguments: str, without: str = "", folder: Path) -> subprocess.CompletedProcess[str]:
    """`python -m bench.gpu`, where a framework may fail to start."""
    if without:
        (folder / f"{without}.py").write_text("raise ImportError('it does not start')\n")
    return subprocess.run(
        [sys.executable, "-m", "bench.gpu", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((".", "backends", str(folder)))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_without_jax_the_parts_of_torch_run(tmp_path: Path) -> None:
    file = tmp_path / "results" / "gpu.json"
    done = command("promises", "state", "--out", str(file), without="jax", folder=tmp_path)
    assert "left out: ImportError: it does not start" in done.stdout
    assert done.returncode == 3, done.stderr
    found = json.loads(file.read_text("utf-8"))
    assert {name: case["verdict"] for name, case in found["cases"].items()} == {"state": "ok"}
    assert "jax" not in found
    assert [row["part"] for row in found["rows"]] == ["state"]


def test_without_torch_nothing_can_be_asked(tmp_path: Path) -> None:
    done = command(without="torch", folder=tmp_path)
    assert done.stdout == "torch does not start here: ImportError: it does not start\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "no part 'nothing'; there are kernel, calls,"),
        (("--only", "copies_are_copies", "none"), "no case 'none'; there are kernel_is_at_work,"),
    ],
)
def test_what_is_not_there_is_refused(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = command(*arguments, folder=tmp_path)
    assert said in done.stderr
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("content", [b'{"rows": []}', b"notes", b"\xff", None])
def test_what_others_wrote_is_refused_and_stays(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "mine"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    done = command("--only", "copies_are_copies", "--out", str(file), folder=tmp_path)
    said = f"error: --out: {file} holds something else; wanted a new file, or one of ours"
    assert said in done.stderr
    assert (done.returncode, done.stdout) == (2, "")
    assert content is None or file.read_bytes() == content


def test_a_case_is_asked_alone(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    done = command("--only", "copies_are_copies", "--out", str(file), folder=tmp_path)
    assert done.returncode == 3, done.stderr
    assert json.loads(file.read_text("utf-8"))["cases"].keys() == {"copies_are_copies"}
