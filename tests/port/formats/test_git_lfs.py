"""What Git LFS has not fetched is said to be that, wherever in a checkpoint it lies."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.port.formats.arrays import save
from xlayout.errors import FormatError
from xlayout.port.formats import open_source

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"
TOLD = "a pointer of Git LFS; wanted the file that `git lfs pull` puts in its place"


def refused(path: Path, pointer: Path) -> bool:
    """Whether a checkpoint is refused because of this file, once it is a pointer."""
    pointer.write_text(POINTER, "utf-8")
    with pytest.raises(FormatError, match=f"^{re.escape(str(pointer))}: {TOLD}$"):
        open_source(path)
    return True


@pytest.mark.parametrize("suffix", ["safetensors", "gguf", "bin", "pt", "npz", "h5"])
def test_of_a_file(tmp_path: Path, suffix: str) -> None:
    assert refused(tmp_path / f"model.{suffix}", tmp_path / f"model.{suffix}")


@pytest.mark.parametrize(
    ("format_", "file"),
    [
        ("safetensors", "model.safetensors"),
        ("safetensors", "config.json"),
        ("dcp", ".metadata"),
        ("dcp", "__0_0.distcp"),
        ("dcp", "config.json"),
        ("maxtext", "0/items/_METADATA"),
        ("maxtext", "0/items/manifest.ocdbt"),
        ("maxtext", "0/items/d/*"),
    ],
)
def test_in_a_directory(tmp_path: Path, format_: str, file: str) -> None:
    save(tmp_path / "out", format_, {"x": np.ones((64, 64), np.float32)})
    (tmp_path / "out" / "config.json").write_text("{}", "utf-8")
    pointer = next((tmp_path / "out").glob(file))
    assert refused(tmp_path / "out", pointer)


def test_a_long_file_that_begins_like_one_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_text(POINTER + 1024 * " ", "utf-8")
    with pytest.raises(FormatError, match=r"x\.gguf: byte 4: begins with b'vers'; wanted b'GGUF'"):
        open_source(tmp_path / "x.gguf")
