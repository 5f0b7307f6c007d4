"""A table says the same as plain text and in a window."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rich.console import Console

from xlayout import port
from xlayout.port.table import Table

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


def test_a_window_shows_the_same_words(wide_llama: Path, tmp_path: Path) -> None:
    for found in (TABLE, port.plan(wide_llama, tmp_path / "out", to="maxtext")):
        console = Console(width=300)
        with console.capture() as page:
            console.print(found)
        words = str(found).replace("─", "").split()
        assert set(words) <= set(page.get().split())


def test_the_command_line_without_its_libraries_says_what_brings_them() -> None:
    code = "import sys; sys.modules['typer'] = None; import xlayout.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'xlayout-arrays[port]' brings it" in done.stderr
