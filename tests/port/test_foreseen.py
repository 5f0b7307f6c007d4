"""A plan foresees that nothing could be written at its place, and touches nothing to find out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.port.formats.programs import script, with_mount
from xlayout import port
from xlayout.errors import PortError


@pytest.mark.parametrize("below", ["out", "new/out"])
def test_a_file_where_a_folder_is_wanted(wide_llama: Path, tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    plan = port.plan(wide_llama, file / below, to="hf")
    assert plan.taken == (
        f"{file}/{below}: {file}: not a folder; wanted a place in one that can be written to"
    )
    assert f"a run is refused: {plan.taken}" in str(plan).splitlines()
    with pytest.raises(PortError, match="wanted a place in a folder that can be written to"):
        port.run(wide_llama, file / below, to="hf")
    assert port.plan(wide_llama, tmp_path / "new" / below, to="hf").taken == ""
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("ro", "{0}/new/out: {0} cannot be written to; wanted a place in a folder that can be"),
        ("size=64k", "{0}/new/out: the disk is full: the tensors take {1:,} bytes, 65,536 are f"),
    ],
)
def test_a_place_that_cannot_take_it(
    wide_llama: Path, tmp_path: Path, option: str, text: str
) -> None:
    """On real filesystems, which stop root too: one that is read-only, one of 64 KiB."""
    program = script(
        """
        from xlayout import port
        source, out = sys.argv[1], Path(sys.argv[2], "new", "out")
        print(port.plan(source, out, to="dcp").taken)
        try:
            port.run(source, out, to="dcp")
        except PortError:
            assert not out.parent.exists()
            print("refused")
        """,
        wide_llama,
        tmp_path,
    )
    done = subprocess.run([*with_mount(tmp_path, option), *program], capture_output=True, text=True)
    foreseen, refused = done.stdout.splitlines()
    needed = port.plan(wide_llama, tmp_path / "out", to="dcp").write_bytes
    assert foreseen.startswith(text.format(tmp_path, needed))
    assert refused == "refused"


def test_a_place_that_cannot_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    program = script(
        """
        import os
        from xlayout.port.formats.foreseen import why_refused
        if os.geteuid() == 0:
            os.setuid(65534)  # root may look anywhere
        print(why_refused(Path(sys.argv[1]), 0, single=False))
        """,
        tmp_path / "closed" / "out",
    )
    done = subprocess.run(program, capture_output=True, text=True)
    place = tmp_path / "closed" / "out"
    told = f"{place}: {place} cannot be looked at; wanted a place that can be"
    assert done.stdout.splitlines() == [told], done.stderr


def test_room_for_the_tensors_is_enough(
    wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = port.plan(wide_llama, tmp_path / "out", to="hf").write_bytes
    for free, foreseen in ((needed, False), (needed - 1, True)):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        assert bool(port.plan(wide_llama, tmp_path / "out", to="hf").taken) == foreseen


def test_what_an_interrupted_run_left_may_be_all_the_room_that_is_needed(
    wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: int) -> None:
        raise SystemExit("stop")

    with pytest.raises(SystemExit, match="stop"):
        port.run(wide_llama, tmp_path / "out", to="hf", progress=stop)
    (left,) = tmp_path.iterdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    assert port.plan(wide_llama, tmp_path / "out", to="hf").taken == ""
    assert "the disk is full" in port.plan(wide_llama, tmp_path / "other", to="hf").taken
    assert list(tmp_path.iterdir()) == [left]
