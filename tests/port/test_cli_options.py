"""Every option of the command line reaches the library, and what is left out has its default."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from xlayout import Mesh, cli, port
from xlayout.port.demo.weights import make_tiny

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
A, B = "a", "b"
PLAIN = {"family": None, "dtype": None, "mesh": None, "max_ram": "512MiB", "exact": True}
ODD = {
    "family": "llama",
    "dtype": "float32",
    "mesh": Mesh((2, 4), ("fsdp", "tp")),
    "max_ram": "1MB",
    "exact": False,
}
ODDLY = ["--family", "llama", "--dtype", "float32", "--max-ram", "1MB", "--lossy"]
ODDLY += ["--mesh", "fsdp=2, tp=4"]
CALLS: list[tuple[list[str], Call]] = [
    (["inspect", "a"], ("inspect", (A,), {"family": None})),
    (["inspect", "a", "--family", "llama"], ("inspect", (A,), {"family": "llama"})),
    (["plan", "a", "b", "--to", "hf"], ("plan", (A, B), {"to": "hf", **PLAIN})),
    (["plan", "a", "b", "--to", "hf", *ODDLY], ("plan", (A, B), {"to": "hf", **ODD})),
    (
        ["port", "a", "b", "--to", "hf"],
        ("run", (A, B), {"to": "hf", **PLAIN, "resume": True, "verify": True}),
    ),
    (
        ["port", "a", "b", "--to", "hf", *ODDLY, "--no-resume", "--no-verify"],
        ("run", (A, B), {"to": "hf", **ODD, "resume": False, "verify": False}),
    ),
    (
        ["verify", "a", "b"],
        ("verify", (A, B), {"family": None, "max_ram": "512MiB", "digests": False}),
    ),
    (
        ["verify", "a", "b", "--family", "llama", "--max-ram", "1MB"],
        ("verify", (A, B), {"family": "llama", "max_ram": "1MB", "digests": False}),
    ),
    (["diff", "a", "b"], ("diff", (A, B), {"family": None})),
    (["diff", "a", "b", "--family", "llama"], ("diff", (A, B), {"family": "llama"})),
]


@pytest.mark.parametrize(("words", "wanted"), CALLS, ids=lambda value: " ".join(value[:1]))
def test_options_reach_the_library(
    monkeypatch: pytest.MonkeyPatch, words: list[str], wanted: Call
) -> None:
    calls: list[Call] = []

    def called(name: str) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            for told in ("planned", "progress"):
                assert callable(options.pop(told, print))
            calls.append((name, given, options))
            return SimpleNamespace(identical=True, lines=(), taken="")

        return call

    for name in ("inspect", "plan", "run", "verify", "diff"):
        monkeypatch.setattr(port, name, called(name))
    assert CliRunner().invoke(cli.app, words).exit_code == 0
    assert calls == [wanted]


def test_explain_counts_bytes_of_elements_of_two_or_as_many_as_it_is_told() -> None:
    words = ["explain", "a b -> b a", "a=8", "b=4"]
    assert "64 B" in CliRunner().invoke(cli.app, words).stdout
    assert "128 B" in CliRunner().invoke(cli.app, [*words, "--itemsize", "4"]).stdout


def test_in_a_window_a_table_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = CliRunner().invoke(cli.app, ["families"]).stdout
    monkeypatch.setattr(cli, "_is_window", lambda: True)
    drawn = CliRunner().invoke(cli.app, ["families"], env={"COLUMNS": "200"}).stdout
    assert drawn != plain
    assert {word for word in plain.split() if "─" not in word} <= set(drawn.split())


def test_the_command_line_takes_ranks(tmp_path: Path) -> None:
    def xlayout(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "xlayout.cli", *words]
        return subprocess.run(command, capture_output=True, text=True)

    tiny = make_tiny(tmp_path / "tiny.gguf")
    words = [str(tiny), str(tmp_path / "out"), "--to", "dcp", "--mesh"]
    assert "6 ranks (fsdp=3 tp=2)" in xlayout("plan", *words, "fsdp=3,tp=2").stdout
    assert xlayout("port", *words, "tp=2").returncode == 0
    assert (tmp_path / "out" / "__1_0.distcp").exists()


@pytest.mark.parametrize(
    ("mesh", "why"),
    [
        ("tp", "'tp'; wanted sizes such as fsdp=4,tp=8, of at most 18 digits, and at least 1"),
        ("tp=0", "'tp=0'; wanted sizes such as fsdp=4,tp=8, of at most 18 digits, and at least 1"),
        ("", "''; wanted sizes such as fsdp=4,tp=8, of at most 18 digits, and at least 1"),
        ("tp=2,tp=3", "tp=3; it was tp=2 before"),
    ],
)
def test_ranks_that_make_no_sense_are_refused_by_the_name_of_the_option(
    mesh: str, why: str
) -> None:
    made = CliRunner().invoke(cli.app, ["plan", "in", "out", "--to", "dcp", "--mesh", mesh])
    assert made.exit_code == 2
    assert f"Invalid value for --mesh: {why}" in " ".join(made.stderr.replace("│", "").split())
