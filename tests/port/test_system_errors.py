"""Where the system fails a port, the error names the file, and what was written is kept."""

from __future__ import annotations

import errno
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xlayout import port
from xlayout.errors import LayoutError
from xlayout.port.demo.weights import make_tiny
from xlayout.port.formats.system_errors import named

KEPT = "what was written is kept, and the same command goes on from there"
FILES = {"tiny.gguf": "tiny.gguf", "hf": "hf/model.safetensors"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama in each format."""
    folder = tmp_path_factory.mktemp("models")
    make_tiny(folder / "tiny.gguf")
    for name, to in (("hf", "hf"), ("tree", "maxtext")):
        port.run(folder / "tiny.gguf", folder / name, to=to)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("value", "run"):
            patch.setattr(sys.modules[f"xlayout.port.{module}"], "SHARD_BYTES", 100_000)
        port.run(folder / "tiny.gguf", folder / "dcp", to="dcp")
    return folder


def test_an_error_without_a_number_is_told_as_it_is() -> None:
    with pytest.raises(OSError, match=r"^a file that ends early$"), named("x"):
        raise OSError("a file that ends early")
    with pytest.raises(OSError, match=r"Input/output error: 'y'$"), named("x"):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "y")


@pytest.mark.parametrize("name", FILES)
def test_a_source_that_cannot_be_read_for_now(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A simulated disk that fails for a moment, since no test can cause a real failure."""
    reads: list[int] = []
    preadv = os.preadv

    def fail(handle: int, *arguments: Any) -> int:
        reads.append(handle)
        if len(reads) == 9:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return preadv(handle, *arguments)

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        port.run(models / name, tmp_path / "out", to="maxtext")
    assert caught.value.filename == str(models / FILES[name])
    assert caught.value.__notes__ == [KEPT]
    report = port.run(models / name, tmp_path / "out", to="maxtext")
    assert report.kept_bytes > 0
    assert report.comparison is not None
    assert report.comparison.identical
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(("name", "file"), [("tree", "tree: params/"), ("dcp", "dcp/__0_")])
def test_files_that_cannot_be_opened_for_now(
    models: Path, tmp_path: Path, name: str, file: str
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def starve(_nbytes: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))

    try:
        with pytest.raises(OSError, match="files: this process may have 0; wanted a") as caught:
            port.run(models / name, tmp_path / "out", to="hf", progress=starve)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.errno == errno.EMFILE
    assert caught.value.filename.startswith(f"{models}/{file}")
    assert caught.value.__notes__ == [KEPT]
    assert port.run(models / name, tmp_path / "out", to="hf").kept_bytes > 0


def test_threads_that_cannot_be_started_for_now(
    models: Path, tmp_path: Path, no_more_threads: Callable[[], int]
) -> None:
    def interrupt(_nbytes: int) -> None:
        raise KeyboardInterrupt("by hand")

    source, out = models / "tiny.gguf", tmp_path / "out"
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        port.run(source, out, to="hf", progress=interrupt)
    usual = no_more_threads()
    with pytest.raises(OSError, match=r"can't start new thread, 0 of .* wanted a hi") as caught:
        port.run(source, out, to="hf")
    assert caught.value.__notes__ == [KEPT]
    threading.stack_size(usual)
    assert port.run(source, out, to="hf").kept_bytes > 0


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_a_folder_where_a_file_is_wanted_is_refused(tmp_path: Path, name: str) -> None:
    make_tiny(tmp_path / "tiny.gguf")
    port.run(tmp_path / "tiny.gguf", tmp_path / "hf", to="hf")
    (tmp_path / "hf" / name).unlink(missing_ok=True)
    (tmp_path / "hf" / name).mkdir()
    refusal = "no config" if name == "config.json" else f"{name}: not a file; wanted a regular"
    with pytest.raises(LayoutError, match=refusal):
        port.plan(tmp_path / "hf", tmp_path / "out", to="maxtext")
