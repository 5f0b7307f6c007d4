"""A hidden folder is known by its mark and its lock, and only ours is ever removed."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
import tensorstore

from tests.port.formats.failing import failing
from tests.port.formats.test_journal import SPECS, finish, interrupted
from tests.port.formats.test_kept import committed, finished, stages
from tests.port.formats.test_midway import handles
from xlayout.errors import PortError
from xlayout.port.formats import create_sink
from xlayout.port.formats.journal import JOURNAL
from xlayout.port.formats.stages import dead_stages, try_lock


def test_only_a_folder_that_is_marked_or_empty_is_removed(tmp_path: Path) -> None:
    folders = [tmp_path / f".out.0000000{n}.partial" for n in range(5)]
    strange, linked, piped, _empty, marked = folders
    for folder in folders:
        folder.mkdir()
    (strange / "thesis.tex").write_text("mine")
    os.mkfifo(piped / JOURNAL)
    (linked / JOURNAL).symlink_to(strange / "thesis.tex")
    (marked / JOURNAL).touch()
    (marked / "model.safetensors").write_bytes(b"half")
    committed(tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == [strange, linked, piped, tmp_path / "out"]
    assert (strange / "thesis.tex").read_text() == "mine"
    assert not handles(tmp_path)


def test_a_removal_that_is_killed_midway_leaves_a_folder_that_is_still_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".out.00000000.partial"
    (folder / "0" / "items").mkdir(parents=True)
    (folder / "model.safetensors").touch()
    (folder / JOURNAL).touch()
    unlink = os.unlink

    def killed(path: str | Path, **where: int) -> None:
        unlink(path, **where)
        raise KeyboardInterrupt("by hand")

    for _ in range(2):  # a file is removed, and then another
        (stage,) = dead_stages(tmp_path / "out")
        monkeypatch.setattr(os, "unlink", killed)
        with pytest.raises(KeyboardInterrupt, match="by hand"):
            stage.remove()
        monkeypatch.undo()
        stage.release()
    committed(tmp_path / "out")
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


@pytest.mark.parametrize("key", ["other", None])
@pytest.mark.parametrize("moment", ["before it is removed", "before the lock"])
def test_a_second_run_that_is_interrupted_at_its_start_leaves_the_first_ones_work_to_a_third(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None, moment: str
) -> None:
    """In the same process, in which a lock that was not released would look like a live run."""
    interrupted(tmp_path / "new" / "out", "safetensors")
    (first,) = stages(tmp_path / "new" / "out")

    def interrupt(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt("by hand")

    if moment == "before it is removed":
        monkeypatch.setattr(os, "unlink", interrupt)
    else:
        monkeypatch.setattr(fcntl, "flock", interrupt)
    with pytest.raises(KeyboardInterrupt, match="by hand") as caught:
        create_sink(tmp_path / "new" / "out", "safetensors", SPECS, key=key)
    assert stages(tmp_path / "new" / "out") == [first]
    assert not handles(tmp_path)
    assert finish(tmp_path / "new" / "out", "safetensors", "key") == ["a"]
    assert caught.tb  # which keeps alive what the interrupt left, as a notebook does


def test_an_interrupt_while_the_lock_is_awaited_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt("by hand")

    monkeypatch.setattr(fcntl, "flock", interrupt)
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        create_sink(tmp_path / "new" / "out", "safetensors", SPECS)
    assert not list(tmp_path.iterdir())
    assert not handles(tmp_path)


def test_an_interrupt_while_arrays_are_made_leaves_nothing_when_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ = tensorstore.open

    class Slow:
        """An array that is made only when it is waited for, and for which the wait is cut short."""

        def __init__(self, *args: Any, **how: Any) -> None:
            self.make, self.waits = lambda: open_(*args, **how).result(), 0

        def exception(self) -> None:
            self.waits += 1
            if self.waits == 1:
                raise KeyboardInterrupt("by hand")
            self.make()

    slow: list[Slow] = []
    monkeypatch.setattr(tensorstore, "open", lambda *a, **k: slow.append(Slow(*a, **k)) or slow[-1])
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        create_sink(tmp_path / "out", "maxtext", {"a": SPECS["a"]}, key="key")
    assert [one.waits for one in slow] == [2]
    assert not list(tmp_path.iterdir())


def test_a_folder_of_which_a_part_cannot_be_removed_is_removed_by_a_later_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".out.00000000.partial"
    (folder / "0" / "items").mkdir(parents=True)
    (folder / JOURNAL).touch()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", failing(errno.EBUSY))
        with create_sink(tmp_path / "out", "safetensors", SPECS):
            assert len(stages(tmp_path / "out")) == 2
    assert folder in stages(tmp_path / "out")
    committed(tmp_path / "out")
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_a_removal_that_is_killed_behind_the_output_is_finished_by_whom_it_refuses(
    tmp_path: Path,
) -> None:
    out = tmp_path / "x.safetensors"
    committed(out)
    folder = tmp_path / ".x.safetensors.00000000.partial"
    folder.mkdir()
    (folder / JOURNAL).write_text("of the file that is there")  # the link to it is gone
    with pytest.raises(PortError, match="already holds something"):
        create_sink(out, "safetensors", SPECS)
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_that_another_run_is_about_to_remove_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[Timer] = []

    def lock_second(handle: int, **how: bool) -> bool:
        monkeypatch.undo()
        (taken,) = dead_stages(tmp_path / "out")
        others.append(Timer(0.1, taken.remove))
        others[0].start()
        return try_lock(handle, **how)

    monkeypatch.setattr("xlayout.port.formats.stages.try_lock", lock_second)
    with create_sink(tmp_path / "out", "safetensors", SPECS) as sink:
        others[0].join()
        assert stages(tmp_path / "out")
        assert sink.path == tmp_path / "out"
    assert not list(tmp_path.iterdir())


def test_an_output_that_appears_takes_with_it_what_runs_left_that_were_killed_meanwhile(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    with create_sink(out, "safetensors", SPECS) as alive:
        (other,) = stages(out)
        with create_sink(out, "safetensors", SPECS, key="key") as sink:
            shutil.copytree(other, tmp_path / ".out.00000000.partial")  # nobody holds its lock
            assert len(stages(out)) == 3
            finished(sink)
        assert stages(out) == [other]
        with pytest.raises(PortError, match="already holds something"):
            finished(alive)
    assert list(tmp_path.iterdir()) == [out]


def test_a_run_without_a_key_marks_its_folder_and_leaves_no_mark(tmp_path: Path) -> None:
    with create_sink(tmp_path / "out", "safetensors", SPECS):
        (stage,) = stages(tmp_path / "out")
        assert (stage / JOURNAL).read_bytes() == b""
    committed(tmp_path / "out", key=None)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.safetensors"]


def test_a_folder_that_another_run_is_done_with_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".out.00000000.partial"
    folder.mkdir()
    (folder / JOURNAL).touch()

    def lock_later(handle: int, **how: bool) -> bool:
        folder.rename(tmp_path / "out")
        return try_lock(handle, **how)

    monkeypatch.setattr("xlayout.port.formats.stages.try_lock", lock_later)
    assert dead_stages(tmp_path / "out") == []
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_another_run_is_about_to_remove_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path / "out", "safetensors")
    (folder,) = stages(tmp_path / "out")

    def lock_late(handle: int, **how: bool) -> bool:
        (folder / JOURNAL).unlink(missing_ok=True)
        return try_lock(handle, **how)

    monkeypatch.setattr("xlayout.port.formats.stages.try_lock", lock_late)
    assert dead_stages(tmp_path / "out") == []
    assert not handles(tmp_path)


def test_on_a_filesystem_that_locks_only_what_is_open_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def refuse(handle: int, how: int) -> None:
        """Lock as NFS does, and SMB."""
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            failing(errno.EBADF)()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", refuse)
    out = tmp_path / "out"
    with create_sink(out, "safetensors", SPECS, key="same"):
        assert dead_stages(out) == []
        (folder,) = stages(out)
        kept = tmp_path / "kept"
        shutil.copytree(folder, kept)
    kept.rename(folder)  # as if the run had been killed
    (dead,) = dead_stages(out)
    assert dead.folder == folder
    dead.release()
    committed(out)
    assert list(tmp_path.iterdir()) == [out]
