"""The current directory is never an output, and a path that is none does not mean it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from xlayout import port
from xlayout.cli import app
from xlayout.errors import PortError
from xlayout.port.formats import TensorSpec, create_sink, open_source


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
    with pytest.raises(PortError, match=r"^path: ''; wanted where the output will appear$"):
        create_sink("", "dcp", {"x": TensorSpec("int8", (1,))})
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_no_file_can_have_is_refused(wide_llama: Path, tmp_path: Path) -> None:
    with pytest.raises(PortError, match=r"^src: 'a\\x00b'; wanted a checkpoint file or directory$"):
        port.run("a\0b", tmp_path / "out", to="hf")
    with pytest.raises(PortError, match=r"^dst: 'a\\x00b'; wanted where the output will appear: "):
        port.run(wide_llama, "a\0b", to="hf")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_source_is_refused(wide_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(wide_llama)
    for name, call in (
        ("path", lambda: port.inspect("")),
        ("path", lambda: open_source("", "safetensors")),
        ("a", lambda: port.verify("", "")),
        ("b", lambda: port.diff(wide_llama, "")),
        ("src", lambda: port.plan("", "out", to="dcp")),
    ):
        text = f"{name}: ''; wanted a checkpoint file or directory"
        with pytest.raises(PortError, match=f"^{text}$"):
            call()
    found = CliRunner().invoke(app, ["verify", "", ""])
    assert found.exit_code == 1
    assert "a: ''; wanted a checkpoint" in found.stderr
    assert "every element identical" in CliRunner().invoke(app, ["verify", ".", "."]).stdout
