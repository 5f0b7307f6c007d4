"""What the system refuses midway comes through as it is, and leaves nothing that nobody wants."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.port.formats.arrays import bits, save
from tests.port.formats.failing import failing
from tests.port.formats.test_journal import SPECS, finish, interrupted
from tests.port.formats.test_kept import KEPT, committed, stages
from xlayout.errors import FormatError, PortError
from xlayout.port.formats import Sink, TensorSpec, create_sink, numpy_dtype, open_source
from xlayout.port.formats.journal import JOURNAL, Journal
from xlayout.port.formats.publish import Staging


def filled(out: Path, **options: Any) -> Sink:
    sink = create_sink(out, "safetensors", {"a": TensorSpec("int8", (4,))}, **options)
    sink.write("a", np.arange(4, dtype=np.int8))
    return sink


def no_new_files(patch: pytest.MonkeyPatch, number: int) -> None:
    open_ = os.open

    def refuse(path: Any, flags: int, *args: int, **where: int) -> int:
        if flags & os.O_CREAT:
            failing(number)()
        return open_(path, flags, *args, **where)

    patch.setattr(os, "open", refuse)


def test_a_folder_that_cannot_be_marked_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_new_files(monkeypatch, errno.EDQUOT)
    with pytest.raises(PortError, match=f"{os.strerror(errno.EDQUOT)}; wanted a place in a folder"):
        create_sink(tmp_path / "new" / "out", "safetensors", SPECS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_no_fault_of_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    no_new_files(monkeypatch, number)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        create_sink(tmp_path / "new" / "out", "safetensors", SPECS)
    assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "new" / "out"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["a file", "a link to a folder", "a link to nothing"])
def test_what_is_no_folder_is_let_be_whatever_its_name(tmp_path: Path, what: str) -> None:
    named = tmp_path / ".out.00000000.partial"
    (tmp_path / "mine").mkdir()
    for file in (JOURNAL, "thesis.tex"):
        (tmp_path / "mine" / file).touch()
    if what == "a file":
        named.write_text("mine")
    else:
        named.symlink_to("mine" if what == "a link to a folder" else "nothing")
    committed(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == [named.name, "mine", "out"]
    assert named.is_symlink() == (what != "a file")
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_a_link_that_the_system_fails_to_make_is_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as caught:
        filled(tmp_path / "x.safetensors").commit()
    assert caught.value.errno == errno.EIO
    assert not list(tmp_path.iterdir())


def test_a_folder_that_fills_in_the_last_moment_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "rename", failing(errno.ENOTEMPTY))
    with pytest.raises(PortError, match="out: already holds something; wanted an absent or empty"):
        filled(tmp_path / "out").commit()
    assert not list(tmp_path.iterdir())


def test_links_in_a_dead_runs_folder_go_and_not_what_they_lead_to(tmp_path: Path) -> None:
    dead = tmp_path / ".out.00000000.partial"
    for folder in (dead, tmp_path / "mine"):
        folder.mkdir()
        (folder / JOURNAL).touch()
    (tmp_path / "mine" / "thesis.tex").touch()
    (dead / "0").symlink_to(tmp_path / "mine")
    committed(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out"]
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_the_folder_of_another_user_is_let_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".out.00000000.partial"
    folder.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    committed(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == [folder.name, "out"]


def test_no_journal_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / JOURNAL).symlink_to("thesis.tex")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        Journal(tmp_path, "key")
    assert (tmp_path / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("format_", ["safetensors", "dcp", "maxtext"])
def test_companions_that_cannot_be_dropped_for_now_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    out = tmp_path / "out"
    with (
        suppress(KeyboardInterrupt),
        create_sink(out, format_, SPECS, key="key", beside={"x": b"mine"}) as sink,
    ):
        for name, spec in SPECS.items():
            sink.write(name, np.ones(spec.shape, numpy_dtype(spec.dtype)))
        sink.seal()
        raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output error") as caught:
            create_sink(out, format_, SPECS, key="key")
    assert (caught.value.filename, caught.value.__notes__) == (str(out), [KEPT])
    assert finish(out, format_, "key") == ["a", "b"]
    assert not (out / "x").exists()


@pytest.mark.parametrize("key", [None, "key"])
def test_a_companion_that_is_gone_ends_the_run(tmp_path: Path, key: str | None) -> None:
    """Even without a `with` block, which would end it too."""
    beside = tmp_path / "tokenizer.json"
    beside.write_text("{}")
    out = tmp_path / "out"
    sink = filled(out, key=key, beside={beside.name: beside})
    beside.unlink()
    with pytest.raises(FileNotFoundError, match="tokenizer") as caught:
        sink.seal()
    assert caught.value.filename == str(beside)
    assert getattr(caught.value, "__notes__", []) == ([KEPT] if key else [])
    assert len(stages(out)) == (1 if key else 0)
    with pytest.raises(PortError, match="committed or aborted before"):
        sink.seal()
    sink.abort()
    assert len(stages(out)) == (1 if key else 0)


def test_what_is_sealed_is_not_written_again(tmp_path: Path) -> None:
    """It has been compared by then, and another content would not have been."""
    beside = tmp_path / "tokenizer.json"
    beside.write_text("{}")
    with filled(tmp_path / "out", beside={beside.name: beside, "note.txt": b"mine"}) as sink:
        sink.seal()
        beside.write_text("[]")
        sink.commit()
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"
    assert (tmp_path / "out" / "note.txt").read_text() == "mine"


def test_what_is_committed_or_aborted_is_not_committed_again(tmp_path: Path) -> None:
    sink = filled(tmp_path / "out")
    sink.commit()
    with pytest.raises(PortError, match="out: committed or aborted before"):
        sink.commit()
    sink.abort()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    sink = filled(tmp_path / "other")
    sink.abort()
    with pytest.raises(PortError, match="other: committed or aborted before"):
        sink.commit()
    with pytest.raises(PortError, match="other: sealed, committed or aborted; nothing can be wri"):
        sink.write("a", np.arange(4, dtype=np.int8))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_that_cannot_be_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for format_ in ("safetensors", "dcp"):
        save(tmp_path / format_, format_, {"a": bits("int8", (4,))})
    monkeypatch.setattr(os, "open", failing(errno.EACCES))
    with pytest.raises(FormatError, match=r"model\.safetensors: Permission denied; wanted a rea"):
        open_source(tmp_path / "safetensors")
    monkeypatch.setattr(Path, "read_bytes", failing(errno.EACCES))
    with pytest.raises(FormatError, match=r"\.metadata: Permission denied; wanted a readable fi"):
        open_source(tmp_path / "dcp")


@pytest.mark.parametrize(
    ("format_", "part", "becomes"),
    [
        ("safetensors", "model.safetensors", "a folder"),
        ("safetensors", "model.safetensors", "a link"),
        ("safetensors", "", "a folder elsewhere"),
        ("safetensors", "", "a file"),
        ("safetensors", "", "nothing"),
        ("maxtext", "0", "a file"),
        ("maxtext", "0/items", "a file"),
    ],
)
def test_work_of_another_shape_is_begun_again(
    tmp_path: Path, format_: str, part: str, becomes: str
) -> None:
    out = tmp_path / "here" / "out"
    interrupted(out, format_)
    (stage,) = stages(out)
    home, elsewhere = stage / "output", tmp_path / "elsewhere"
    (home / part).rename(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    match becomes:
        case "nothing":
            pass
        case "a folder":
            (home / part).mkdir()
        case "a link" | "a folder elsewhere":
            (home / part).symlink_to(elsewhere)
        case _:
            (home / part).touch()
    assert finish(out, format_, "key") == []
    assert sorted(elsewhere.rglob("*")) == before


@pytest.mark.parametrize("name", ["out", "x.safetensors"])
def test_an_interrupt_that_comes_last_finds_the_output_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    remove = Staging._remove_parents

    def interrupt(_: Staging) -> None:
        monkeypatch.setattr(Staging, "_remove_parents", remove)
        raise KeyboardInterrupt("by hand")

    monkeypatch.setattr(Staging, "_remove_parents", interrupt)
    with pytest.raises(KeyboardInterrupt, match="by hand") as caught:
        filled(tmp_path / name, key="key").commit()
    assert caught.value.__notes__ == ["the output was complete by then"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def handles(folder: Path) -> list[str]:
    """The files under a folder that this process has open."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [name for name in map(os.readlink, links) if name.startswith(str(folder))]


def stays_open(folder: Path) -> list[str]:
    """Those that are not closed soon: threads of tensorstore's close theirs behind a read."""
    end = time.monotonic() + 10
    while (found := handles(folder)) and time.monotonic() < end:
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("format_", ["safetensors", "dcp", "maxtext"])
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_no_file_stays_open(tmp_path: Path, format_: str, end: str) -> None:
    sink = create_sink(tmp_path / "out", format_, {"a": TensorSpec("int8", (4,))}, key="key")
    sink.write("a", np.arange(4, dtype=np.int8))
    assert handles(tmp_path)
    getattr(sink, end)()
    assert not handles(tmp_path)
    if end == "commit":
        with open_source(sink.path) as source:
            source.read("a")
        assert not stays_open(tmp_path)
