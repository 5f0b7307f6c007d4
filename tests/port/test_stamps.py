"""A source that is written to while it is read is refused; one that is gone is read to its end.

A file that is opened only when it is needed may not be replaced either.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from xlayout import port
from xlayout.errors import PortError
from xlayout.port.demo.weights import make_tiny


def overwrite(file: Path) -> None:
    """Write again what is there, as a download does that fills in a file from its end."""
    with file.open("r+b") as handle:
        last = handle.seek(-1, os.SEEK_END)
        byte = handle.read(1)
        handle.seek(last)
        handle.write(byte)
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))  # whatever the clock's resolution


def grow(file: Path) -> None:
    with file.open("ab") as handle:
        handle.write(b"\0")


def replace(file: Path) -> None:
    other = file.with_name("other")
    shutil.copy(file, other)
    other.rename(file)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    hf = tmp_path / "hf"
    port.run(make_tiny(tmp_path / "tiny.gguf"), hf, to="hf")
    return hf


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(("change", "more"), [(overwrite, 0), (grow, 1)])
def test_a_source_that_is_written_to_is_refused(
    source: Path, tmp_path: Path, change: Callable[[Path], None], more: int, verify: bool
) -> None:
    file = source / "model.safetensors"
    size = file.stat().st_size
    text = (
        rf"hf/model\.safetensors: written to while it was read \({size:,} bytes before, "
        rf"{size + more:,} after\); wanted a checkpoint that is complete"
    )
    with pytest.raises(PortError, match=text):
        port.run(source, tmp_path / "out", to="dcp", planned=lambda _: change(file), verify=verify)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out.*"))


@pytest.mark.parametrize("change", [Path.unlink, replace])
def test_a_file_that_is_removed_or_replaced_is_read_to_its_end(
    source: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    file = source / "model.safetensors"
    report = port.run(
        source, tmp_path / "out", to="dcp", progress=lambda _: file.exists() and change(file)
    )
    assert report.comparison is not None
    assert report.comparison.identical


def test_a_file_that_is_replaced_before_it_is_opened_is_refused(
    source: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    port.run(source, saved, to="dcp")
    text = (
        r"saved/__0_0\.distcp: replaced while its checkpoint was read; wanted one that stays as "
        "it is, because its files are opened when they are needed"
    )
    for verify in (True, False):
        with pytest.raises(PortError, match=text):
            port.run(
                saved,
                tmp_path / "out",
                to="hf",
                planned=lambda _: replace(saved / "__0_0.distcp"),
                verify=verify,
            )
        assert not (tmp_path / "out").exists()


def test_a_file_whose_number_changes_is_the_same_file(source: Path, tmp_path: Path) -> None:
    """As on shares that number a file anew whenever they look it up."""
    saved = tmp_path / "saved"
    port.run(source, saved, to="dcp")

    def renumber(_: object) -> None:
        file = saved / "__0_0.distcp"
        other = shutil.copy2(file, file.with_name("other"))
        other.rename(file)

    report = port.run(saved, tmp_path / "out", to="hf", planned=renumber)
    assert report.comparison is not None
    assert report.comparison.identical


def test_what_is_written_over_is_told_before_what_differs(source: Path, tmp_path: Path) -> None:
    file = source / "model.safetensors"

    def damage(_: int) -> None:
        with file.open("r+b") as handle:
            handle.seek(file.stat().st_size // 2)
            handle.write(os.urandom(file.stat().st_size // 2))

    with pytest.raises(PortError, match="written to while it was read"):
        port.run(source, tmp_path / "out", to="dcp", progress=damage)
