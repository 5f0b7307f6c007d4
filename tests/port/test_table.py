"""A table says the same in plain text and in a window."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from typer.testing import CliRunner

from tests.port.models import save_tensors, tensors
from xlayout import port
from xlayout.cli import app
from xlayout.table import Table

TABLE = Table("title", ("name", ">bytes"), (("a", "1 B"), ("longer", "12 kB")), ("note", "!loss"))


def test_plain_text_aligns_and_ends_with_the_notes() -> None:
    assert str(TABLE).splitlines() == [
        "title",
        "name    bytes",
        "──────  ─────",
        "a         1 B",
        "longer  12 kB",
        "note",
        "loss",
    ]
    assert str(Table("title", ("name",), (), ("nothing",))) == "title\nnothing"


def test_a_cell_is_one_line() -> None:
    forged = str(Table("", ("name",), (("a\nevery tensor accounted for",),), ("two\nlines",)))
    assert forged.splitlines()[2:] == ["a\\nevery tensor accounted for", "two", "lines"]


def test_a_window_shows_the_same_words(wide_llama: Path, tmp_path: Path) -> None:
    for found in (TABLE, port.plan(wide_llama, tmp_path / "out", to="maxtext")):
        console = Console(width=300)
        with console.capture() as page:
            console.print(found)
        words = str(found).replace("─", "").split()
        assert set(words) <= set(page.get().split())


def test_a_name_cannot_steer_the_terminal(wide_llama: Path, tmp_path: Path) -> None:
    for shown in (
        str(table := Table("a\x1b[2J", ("b",), (("c\rd",),), ("e\n\x9b",))),
        render(table),
    ):
        assert all(line.isprintable() for line in shown.splitlines())
        for escaped in (r"a\x1b[2J", r"c\rd", "e", r"\x9b"):
            assert escaped in shown
    own = shutil.copytree(wide_llama, tmp_path / "own")
    save_tensors(own, {**tensors(own), "x\x1b]0;\x07": np.zeros(3, np.int8)})
    for command in ("inspect", "plan"):
        more = () if command == "inspect" else (str(tmp_path / "out"), "--to", "hf")
        result = CliRunner().invoke(app, [command, str(own), *more])
        assert r"x\x1b]0;\x07" in result.output
        assert "\x1b]" not in result.output


def render(table: Table) -> str:
    console = Console(width=300, color_system=None)
    with console.capture() as page:
        console.print(table)
    return page.get()


def test_the_command_line_without_its_libraries_says_what_brings_them() -> None:
    code = "import sys; sys.modules['typer'] = None; import xlayout.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'xlayout-arrays[port]' brings it" in done.stderr
