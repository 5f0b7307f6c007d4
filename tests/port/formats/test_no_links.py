"""A filesystem without hard links, or one that cannot sync folders, gets an output all the same."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from tests.port.formats.arrays import save
from tests.port.formats.failing import failing
from xlayout.errors import PortError
from xlayout.port.formats import open_source


def commit(out: Path) -> None:
    save(out, "safetensors", {"a": np.arange(4, dtype=np.int8)})


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a filesystem without links, such as exFAT or a mounted bucket."""
    monkeypatch.setattr(os, "link", failing(errno.EPERM))


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(os, "link", failing(number))
    commit(tmp_path / "x.safetensors")
    with open_source(tmp_path / "x.safetensors") as source:
        assert source.read("a").tolist() == [0, 1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_what_appeared_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "x.safetensors"
    touch = Path.touch

    def late(path: Path, *, exist_ok: bool = True) -> None:
        if path == out:
            path.write_text("of another")
        touch(path, exist_ok=exist_ok)

    monkeypatch.setattr(Path, "touch", late)
    with pytest.raises(PortError, match="already holds something"):
        commit(out)
    assert out.read_text() == "of another"


def test_a_rename_that_fails_leaves_no_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "rename", failing(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        commit(tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()


def test_an_interrupt_just_after_the_rename_leaves_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def interrupt(self: Path, target: Path) -> None:
        rename(self, target)
        raise KeyboardInterrupt("by hand")

    monkeypatch.setattr(Path, "rename", interrupt)
    with pytest.raises(KeyboardInterrupt, match="by hand") as caught:
        commit(tmp_path / "x.safetensors")
    assert caught.value.__notes__ == ["the output was complete by then"]
    with open_source(tmp_path / "x.safetensors") as source:
        assert source.read("a").tolist() == [0, 1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


@pytest.mark.parametrize("name", ["x.safetensors", "x"])
def test_a_folder_that_cannot_be_synced_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def refuse(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            failing(errno.EINVAL)()
        synced.append(handle)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refuse)
    commit(tmp_path / name)
    assert synced
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("number", "of_folders"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_what_cannot_be_synced_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, of_folders: bool
) -> None:
    def refuse(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode) == of_folders:
            failing(number)()

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        commit(tmp_path / "x")
    assert caught.value.filename.endswith("/output" if of_folders else "/model.safetensors")
    assert not (tmp_path / "x").exists()
