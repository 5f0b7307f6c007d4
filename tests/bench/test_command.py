"""`xlayout bench` compares what is installed, wherever the package is."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from xlayout.bench.command import compared
from xlayout.bench.frameworks import installed
from xlayout.cli import app


def test_a_table_an_op_and_the_machine() -> None:
    zips, machine = compared(["zip"], 1 << 20, threads=1, compiled=False)
    assert [row[1] for row in zips.rows] == list(installed())
    assert any("xlayout" in column for column in zips.columns)
    assert ("threads", "1") in machine.rows


def test_threads_that_are_not_there_are_refused() -> None:
    done = CliRunner().invoke(app, ["bench", "--threads", "0"])
    assert done.exit_code == 2
    assert "error: threads: 0; this machine has 1 to" in done.output


@pytest.mark.slow
def test_the_quick_form_prints_its_tables() -> None:
    done = CliRunner().invoke(app, ["bench", "--quick"])
    assert done.exit_code == 0
    for text in ("interleave rows", "zip", "transpose", "copy kernel"):
        assert text in done.stdout
