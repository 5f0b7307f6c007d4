"""An output appears whole or not at all, and nothing that was there before is ever touched."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.port.formats.programs import script, with_mount
from xlayout.errors import PortError, ShapeError
from xlayout.port.formats import Sink, TensorSpec, create_sink, open_source, stages
from xlayout.port.formats.stages import try_lock

SPECS = {"a": TensorSpec("int8", (4,)), "b": TensorSpec("int8", (6,))}
FORMATS = ["safetensors", "maxtext", "dcp"]


def fill(sink: Sink) -> None:
    for name, spec in sink.tensors.items():
        sink.write(name, np.ones(spec.shape, np.int8))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("format_", FORMATS)
def test_nothing_is_seen_before_commit_and_all_of_it_after(tmp_path: Path, format_: str) -> None:
    out = tmp_path / "out"
    with create_sink(out, format_, SPECS) as sink:
        fill(sink)
        assert not out.exists()
        sink.commit()
        assert [p.name for p in tmp_path.iterdir()] == ["out"]
    with open_source(out) as source:
        assert dict(source.tensors) == SPECS
        assert source.read("b").tolist() == [1] * 6


@pytest.mark.parametrize("format_", FORMATS)
def test_an_exception_leaves_nothing(tmp_path: Path, format_: str) -> None:
    sink = create_sink(tmp_path / "new" / "deep" / "out", format_, SPECS)
    fill(sink)
    with pytest.raises(ShapeError, match="the region is"), sink:
        sink.write("a", np.zeros(3, np.int8))
    assert not list(tmp_path.iterdir())
    sink.abort()


@pytest.mark.parametrize("format_", FORMATS)
def test_leaving_without_commit_leaves_nothing(tmp_path: Path, format_: str) -> None:
    with create_sink(tmp_path / "out", format_, SPECS) as sink:
        fill(sink)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format_", FORMATS)
def test_refuses_a_directory_that_holds_something(tmp_path: Path, format_: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(PortError, match=r"out: already holds something; wanted an absent or empty"):
        create_sink(tmp_path / "out", format_, SPECS)
    assert tree(tmp_path) == {"out/notes.txt": b"mine"}


@pytest.mark.parametrize("format_", FORMATS)
def test_refuses_a_link_to_itself(tmp_path: Path, format_: str) -> None:
    (tmp_path / "out").symlink_to("out")
    with pytest.raises(PortError, match=r"out: already holds something; wanted an absent or empty"):
        create_sink(tmp_path / "out", format_, SPECS)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("format_", FORMATS)
def test_refuses_a_directory_that_was_filled_meanwhile(tmp_path: Path, format_: str) -> None:
    with create_sink(tmp_path / "out", format_, SPECS) as sink:
        fill(sink)
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "notes.txt").write_text("mine")
        with pytest.raises(PortError, match="already holds something"):
            sink.commit()
    assert tree(tmp_path) == {"out/notes.txt": b"mine"}


def test_refuses_a_file_that_is_there_or_appears_meanwhile(tmp_path: Path) -> None:
    out, other = tmp_path / "x.safetensors", tmp_path / "y.safetensors"
    text = "already holds something; wanted a path that is absent"
    with create_sink(out, "safetensors", SPECS) as sink:
        fill(sink)
        out.write_text("mine")
        with pytest.raises(PortError, match=text):
            sink.commit()
    other.mkdir()  # of which only a folder could take the place
    for path in (out, other):
        with pytest.raises(PortError, match=text):
            create_sink(path, "safetensors", SPECS)
    assert tree(tmp_path) == {"x.safetensors": b"mine"}


def test_refuses_to_put_a_directory_where_a_file_appeared(tmp_path: Path) -> None:
    with create_sink(tmp_path / "out", "safetensors", SPECS) as sink:
        fill(sink)
        (tmp_path / "out").write_text("mine")
        with pytest.raises(PortError, match="already holds something; wanted an absent or empty"):
            sink.commit()
    assert tree(tmp_path) == {"out": b"mine"}


@pytest.mark.parametrize("moment", ["before it is opened", "before it is locked"])
def test_a_folder_that_another_run_clears_too_early_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    cleared: list[Path] = []
    open_ = os.open

    def clear() -> None:
        if not cleared:
            cleared.extend(tmp_path.iterdir())
            shutil.rmtree(cleared[0])

    def open_too_late(path: Path, *args: Any, **where: int) -> int:
        clear()
        return open_(path, *args, **where)

    def lock_too_late(handle: int, **how: bool) -> bool:
        clear()
        return try_lock(handle, **how)

    if moment == "before it is opened":
        monkeypatch.setattr(os, "open", open_too_late)
    else:
        monkeypatch.setattr(stages, "try_lock", lock_too_late)
    with create_sink(tmp_path / "out", "safetensors", SPECS) as sink:
        fill(sink)
        sink.commit()
    assert cleared
    assert set(tree(tmp_path)) == {"out/model.safetensors"}


def test_takes_the_place_of_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with create_sink(tmp_path / "out", "safetensors", SPECS) as sink:
        fill(sink)
        sink.commit()
    assert set(tree(tmp_path)) == {"out/model.safetensors"}


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o500])
@pytest.mark.parametrize("format_", FORMATS)
def test_a_private_directory_stays_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str, mode: int
) -> None:
    rename = Path.rename

    def note_rename(self: Path, target: Path) -> Path:
        assert stat.S_IMODE(self.stat().st_mode) == mode | 0o700
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", note_rename)
    out, late = tmp_path / "out", tmp_path / "late"
    out.mkdir(mode)
    for path in (out, late):
        with create_sink(path, format_, SPECS) as sink:
            (stage,) = tmp_path.glob(".*.partial")
            assert path is late or stat.S_IMODE(stage.stat().st_mode) == mode | 0o700
            path.mkdir(mode, exist_ok=True)
            fill(sink)
            sink.commit()
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_of_two_runs_to_one_place_the_first_wins(tmp_path: Path) -> None:
    with create_sink(tmp_path / "out", "safetensors", SPECS) as one:
        with create_sink(tmp_path / "out", "safetensors", SPECS) as two:
            fill(one)
            fill(two)
            two.commit()
        with pytest.raises(PortError, match="already holds something"):
            one.commit()
    assert set(tree(tmp_path)) == {"out/model.safetensors"}


def test_everything_is_on_disk_before_it_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def note_sync(handle: int) -> None:
        events.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    def note_rename(self: Path, target: Path) -> Path:
        events.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "rename", note_rename)
    with create_sink(tmp_path / "new/deep/out", "safetensors", SPECS, config={"a": 1}) as sink:
        fill(sink)
        sink.commit()
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    assert {"model.safetensors", "config.json"} <= set(before)
    assert before[-1] == "output"
    assert after == ["deep", "new", tmp_path.name]


def test_a_killed_run_leaves_the_old_output_and_the_next_run_clears_up(tmp_path: Path) -> None:
    with create_sink(tmp_path / "old", "safetensors", SPECS) as sink:
        fill(sink)
        sink.commit()
    old = tree(tmp_path)
    run = subprocess.Popen(
        script(
            """
            sink = create_sink(sys.argv[1], "safetensors", {"x": TensorSpec("int8", (1 << 20,))})
            sink.write("x", np.ones(1 << 19, np.int8), (slice(0, 1 << 19),))
            print("half", flush=True)
            time.sleep(60)
            """,
            tmp_path / "out",
        ),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    with run.stdout:
        assert run.stdout.readline() == "half\n"
        with create_sink(tmp_path / "out", "safetensors", SPECS):
            assert len(list(tmp_path.glob(".out.*.partial"))) == 2  # a live one stays
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert not (tmp_path / "out").exists()
    assert {name: tree(tmp_path)[name] for name in old} == old
    with create_sink(tmp_path / "out", "safetensors", SPECS) as sink:
        fill(sink)
        sink.commit()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old", "out"]


def test_refuses_a_mount_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path / "out")
    with pytest.raises(PortError, match="a mount point; name a directory inside it"):
        create_sink(tmp_path / "out", "safetensors", SPECS)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_where_a_folder_is_wanted_is_named(tmp_path: Path, format_: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        PortError, match=r"deep: Not a directory; wanted a place in a folder that can"
    ):
        create_sink(tmp_path / "file" / "deep" / "out", format_, SPECS)
    assert tree(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("format_", FORMATS)
def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, format_: str) -> None:
    """A read-only filesystem, which stops root too."""
    program = script(
        f"""
        try:
            create_sink(Path(sys.argv[1]) / "out", "{format_}", {{"x": TensorSpec("int8", (1,))}})
        except PortError as error:
            print(error)
        """,
        tmp_path,
    )
    done = subprocess.run([*with_mount(tmp_path, "ro"), *program], capture_output=True, text=True)
    assert "Read-only file system; wanted a place in a folder that can be written to" in done.stdout


@pytest.mark.parametrize("name", ["out", "x.safetensors"])
def test_what_is_sealed_can_be_read_before_it_is_seen(tmp_path: Path, name: str) -> None:
    with create_sink(tmp_path / name, "safetensors", SPECS) as sink:
        with pytest.raises(PortError, match="2 tensors are not fully written"):
            sink.seal()
        fill(sink)
        with open_source(sink.seal()) as source:
            assert source.read("b").tolist() == [1] * 6
        assert sink.seal() == sink.seal()
        assert not (tmp_path / name).exists()
        with pytest.raises(PortError, match="sealed, committed or aborted"):
            sink.write("a", np.ones(4, np.int8))
        sink.commit()
    with open_source(tmp_path / name) as source:
        assert dict(source.tensors) == SPECS
