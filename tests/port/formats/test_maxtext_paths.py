"""Paths are followed to where they lead, and refused if tensorstore would take them for others."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.port.formats.arrays import bits, same, save
from tests.port.formats.test_maxtext import model
from xlayout.errors import FormatError
from xlayout.port.formats import TensorSpec, create_sink, open_source


def test_refuses_a_path_that_is_no_text(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff")
    text = f"{odd}: a path that is not UTF-8; wanted one that is, for tensorstore takes no other"
    with pytest.raises(FormatError, match=f"^{re.escape(text)}$"):
        create_sink(odd, "maxtext", {"x": TensorSpec("int8", (1,))})
    assert not list(tmp_path.iterdir())
    save(tmp_path / "good", "maxtext", model())
    (tmp_path / "good").rename(odd)
    with pytest.raises(FormatError, match=f"^{re.escape(text)}$"):
        open_source(odd)


def test_refuses_a_path_that_would_be_taken_for_another(tmp_path: Path) -> None:
    (tmp_path / "a\\b").mkdir()
    (tmp_path / "link").symlink_to("a\\b")
    save(tmp_path / "a\\b" / "x.safetensors", "safetensors", {"x": bits("int8", (1,))})
    for odd in (tmp_path / "a\\b" / "out", tmp_path / "a\\b", tmp_path / "link" / "out"):
        text = (
            f"{odd}: {os.path.realpath(odd)!r} has a backslash; wanted a path without, for "
            "tensorstore takes it for '/'"
        )
        with pytest.raises(FormatError, match=f"^{re.escape(text)}$"):
            create_sink(odd, "maxtext", {"x": TensorSpec("int8", (1,))})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a\\b", "link"]
    save(tmp_path / "good", "maxtext", model())
    (tmp_path / "good").rename(tmp_path / "a\\c")
    save(tmp_path / "a" / "c", "maxtext", {"x": bits("int8", (1,))})
    with pytest.raises(FormatError, match="has a backslash; wanted a path without"):
        open_source(tmp_path / "a\\c")


def test_a_tree_that_was_named_from_here_is_read_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Path("out"), "maxtext", {"x": bits("int8", (4,))})
    Path("link").symlink_to("out")
    for name in ("out", "link", "out/../out"):
        with open_source(name) as source:
            monkeypatch.chdir("/")
            assert same(source.read("x"), bits("int8", (4,)))
            assert source.path == tmp_path / "out"
        monkeypatch.chdir(tmp_path)
