"""Files of a checkpoint are opened as they are needed, and opened again only if unchanged."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.port.formats.failing import failing
from tests.port.formats.test_midway import handles
from tests.port.formats.test_threads import SPECS, values, written
from xlayout.port.formats import open_files, open_source

FORMATS = ["safetensors", "dcp"]


def test_a_file_that_is_read_stays_open_whatever_others_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "_MOST", 1)
    paths = [tmp_path / f"file{k}" for k in range(4)]
    for path in paths:
        path.write_text(path.name)
    files = open_files.OpenFiles(os.O_RDONLY)
    with files.opened(paths[0]) as first:
        for path in paths[1:]:
            with files.opened(path) as other:
                assert os.pread(other, 5, 0) == path.name.encode()
        assert os.pread(first, 5, 0) == b"file0"
        assert opened(tmp_path) == ["file0", "file3"]
    with files.opened(paths[1]):
        assert opened(tmp_path) == ["file1"]
    files.close()
    assert opened(tmp_path) == []


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def renew(path: Path) -> None:
    """What an edit in place does that changes no size."""
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize("change", [grow, renew, None])
@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_that_is_opened_again_has_to_be_what_it_was(
    tmp_path: Path, format_: str, change: Callable[[Path], None] | None, monkeypatch: Any
) -> None:
    monkeypatch.setattr(open_files, "_MOST", 1)
    written(tmp_path / "out", format_)
    monkeypatch.chdir(tmp_path)
    with open_source("out") as source:
        for name in SPECS:
            source.read(name)
        monkeypatch.chdir("/")
        first = next(file for file in source.files if file != ".metadata")
        if change is None:
            shutil.copy2(tmp_path / "out" / first, tmp_path / "copy")
            (tmp_path / "copy").rename(tmp_path / "out" / first)
            assert np.array_equal(source.read("a"), values("a"))
            return
        change(tmp_path / "out" / first)
        text = "changed since it was first opened; wanted a checkpoint that stays as it is"
        for _ in "twice":
            with pytest.raises(OSError, match=text) as caught:
                source.read("a")
            assert caught.value.filename == f"{tmp_path}/out/{first}"
        assert np.array_equal(source.read("h"), values("h"))
    assert opened(tmp_path / "out") == []


@pytest.mark.parametrize("format_", FORMATS)
def test_nothing_is_read_or_opened_once_a_source_is_closed(tmp_path: Path, format_: str) -> None:
    with open_source(written(tmp_path / "out", format_)) as source:
        source.read("a")
    with pytest.raises(OSError, match="the checkpoint is closed"):
        source.read("a")
    assert opened(tmp_path / "out") == []
    source.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_files_that_are_not_in_use_make_room_for_one_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    paths = [tmp_path / f"file{k}" for k in range(4)]
    for path in paths:
        path.touch()
    files, open_ = open_files.OpenFiles(os.O_RDONLY), os.open

    def open_two(path: Path, flags: int) -> int:
        """As many as if all other files that the process may have were open elsewhere."""
        if len(opened(tmp_path)) >= 2:
            failing(number)()
        return open_(path, flags)

    monkeypatch.setattr(os, "open", open_two)
    with files.opened(paths[0]):
        for path in paths:
            with files.opened(path):
                pass
        with (
            files.opened(paths[1]),
            pytest.raises(OSError, match=os.strerror(number)),
            files.opened(paths[2]),
        ):
            pass
        assert opened(tmp_path) == ["file0", "file1"]
    files.close()


def opened(folder: Path) -> list[str]:
    """The names of the files in a folder that this process has open."""
    return sorted(Path(path).name for path in handles(folder))
