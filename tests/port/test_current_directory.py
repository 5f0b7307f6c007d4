"""The current directory is never an output, and an empty path does not mean it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from xlayout import port
from xlayout.cli import app
from xlayout.errors import FormatError, PortError


def test_an_output_does_not_replace_the_current_directory(
    wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "the current directory; name a directory inside it"
    for dst in (".", tmp_path, "inside/.."):
        with pytest.raises(PortError, match=words):
            port.run(wide_llama, dst, to="dcp")
        assert words in str(port.plan(wide_llama, dst, to="dcp"))
    assert list(tmp_path.iterdir()) == []
    port.run(wide_llama, "inside", to="dcp")
    port.run(wide_llama, "x.safetensors", to="hf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "x.safetensors"]


def test_an_empty_output_is_refused(
    wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for verb in (port.plan, port.run):
        with pytest.raises(PortError, match=r"dst: ''; wanted where the output will appear"):
            verb(wide_llama, "", to="hf")
    for command in ("plan", "port"):
        found = CliRunner().invoke(app, [command, str(wide_llama), "", "--to", "hf"])
        assert found.exit_code == 1
        assert "dst: ''; wanted where the output will appear" in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_source_is_refused(wide_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(wide_llama)
    for call in (
        lambda: port.inspect(""),
        lambda: port.verify("", ""),
        lambda: port.diff(wide_llama, ""),
        lambda: port.plan("", "out", to="dcp"),
    ):
        with pytest.raises(FormatError, match=r"path: ''; wanted a checkpoint file or directory"):
            call()
    found = CliRunner().invoke(app, ["verify", "", ""])
    assert found.exit_code == 1
    assert "path: ''; wanted a checkpoint" in found.stderr
    assert "every element identical" in CliRunner().invoke(app, ["verify", ".", "."]).stdout
