"""A full disk leaves nothing behind, and says how much was needed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.port.formats.arrays import save
from tests.port.formats.failing import failing
from tests.port.formats.programs import script, with_mount
from xlayout.errors import PortError
from xlayout.port.formats import TensorSpec, create_sink

FORMATS = ["safetensors", "maxtext", "dcp"]


def test_refuses_before_writing_when_the_disk_is_too_small(tmp_path: Path) -> None:
    huge = {"x": TensorSpec("int8", (1 << 60,))}
    for format_ in FORMATS:
        with pytest.raises(PortError, match=r"disk is full: 1,15\d,\d+.* needed in all, .* free"):
            create_sink(tmp_path / "out", format_, huge)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format_", ["safetensors", "dcp"])
def test_exactly_the_bytes_of_the_files_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    (tmp_path / "vocab.txt").write_text("word")
    beside = {"vocab.txt": tmp_path / "vocab.txt", "metadata.json": b"{}"}
    arrays = {"x": np.ones(4, np.int8), "y": np.ones(5, np.int8)}

    def write(out: Path) -> None:
        save(out, format_, arrays, config={"a": 1}, max_shard_size=5, beside=beside)

    write(tmp_path / "first")
    size = sum(file.stat().st_size for file in (tmp_path / "first").iterdir())
    for free in (size, size - 1):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _path, usage=usage: usage)
        if free == size:
            write(tmp_path / "fits")
        else:
            text = f"out: the disk is full: {size:,} bytes are needed in all, {free:,} are free$"
            with pytest.raises(PortError, match=text):
                write(tmp_path / "out")


def test_a_quota_that_is_used_up_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = r"out: the disk is full: .* are free; a quota is used up, or the number of files it can"
    for owner, call in ((os, "pwrite"), (Path, "write_bytes"), (os, "fsync")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, call, failing(errno.EDQUOT))
            with pytest.raises(PortError, match=text):
                save(tmp_path / "out", "safetensors", {"x": np.ones(4, np.int8)}, config={"a": 1})
        assert not list(tmp_path.iterdir())


FULL_DISK = {
    "claimed in advance": ("safetensors", "pass"),
    "found while writing": ("safetensors", "del os.posix_fallocate"),
    "found by tensorstore": ("maxtext", "pass"),
    "claimed in advance, of archives": ("dcp", "pass"),
}


@pytest.mark.parametrize("case", FULL_DISK)
def test_a_disk_that_fills_up_leaves_nothing_and_says_how_much(tmp_path: Path, case: str) -> None:
    """On a real filesystem of 4 MB, which claims to have room until it is full."""
    format_, patch = FULL_DISK[case]
    program = script(
        f"""
        {patch}
        usage = shutil.disk_usage
        shutil.disk_usage = lambda path: usage(path)._replace(free=1 << 40)
        out = Path(sys.argv[1]) / "new" / "out"
        specs = {{f"x{{i}}": TensorSpec("int8", (1 << 20,)) for i in range(8)}}
        try:
            with create_sink(out, "{format_}", specs) as sink:
                for name in specs:
                    sink.write(name, np.ones(1 << 20, np.int8))
                sink.commit()
        except PortError as error:
            print(error)
        assert not list(Path(sys.argv[1]).iterdir())
        """,
        tmp_path,
    )
    done = subprocess.run(
        [*with_mount(tmp_path, "size=4m"), *program], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "out: the disk is full: 8," in done.stdout
    assert "1,099,511,627,776 are free" in done.stdout
