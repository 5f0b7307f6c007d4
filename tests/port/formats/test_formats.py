"""A checkpoint is recognised by its first bytes, and what reading it needs is asked for by name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.port.formats.arrays import save
from xlayout.errors import FormatError
from xlayout.port.demo.weights import make_tiny
from xlayout.port.formats import TensorSpec, create_sink, open_source, sniff
from xlayout.port.formats.base import DTYPES, numpy_dtype, require

SPECS = {"x": TensorSpec("float32", (2,))}


@pytest.mark.parametrize(
    ("path", "format_"),
    [
        ("x.safetensors", "safetensors"),
        ("dir", "safetensors"),
        ("tree", "maxtext"),
        ("saved", "dcp"),
    ],
)
def test_what_is_written_is_recognised(tmp_path: Path, path: str, format_: str) -> None:
    with create_sink(tmp_path / path, format_, SPECS) as sink:
        assert (sink.format, sink.path) == (format_, tmp_path / path)
        sink.write("x", np.zeros(2, np.float32))
        sink.commit()
    assert sniff(tmp_path / path) == format_
    with open_source(tmp_path / path) as source:
        assert source.format == format_
        assert dict(source.tensors) == SPECS


@pytest.mark.parametrize("path", ["x.safetensors", "safetensors", "maxtext", "dcp", "tiny.gguf"])
def test_what_is_read_after_it_is_closed_is_said_to_be_closed(tmp_path: Path, path: str) -> None:
    if path == "tiny.gguf":
        make_tiny(tmp_path / path)
    else:
        save(tmp_path / path, path.removeprefix("x."), {"x": np.zeros(2, np.float32)})
    with open_source(tmp_path / path) as source:
        name = next(iter(source.tensors))
        source.read(name)
    told = rf"the checkpoint is closed; wanted one that is open: '{tmp_path / path}"
    with pytest.raises(OSError, match=told):
        source.read(name)
    with pytest.raises(KeyError, match="absent"):
        source.read("absent")


def test_gguf_is_known_by_its_magic_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"GGUF....")
    assert sniff(tmp_path / "model.bin") == "gguf"


def test_a_file_that_is_gguf_by_name_only_is_refused_as_such(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for content, fault in (
        (b"", "byte 0: asks for 4 bytes with 0 left; wanted a whole header"),
        (b"GGML....", "byte 4: begins with b'GGML'; wanted b'GGUF'"),
    ):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=f"^{re.escape(f'{path}: {fault}')}$"):
            open_source(path)


def test_refuses_what_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(
        FormatError, match=r"notes\.txt: not a checkpoint we read; wanted safetensors, GG"
    ):
        sniff(tmp_path / "notes.txt")
    with pytest.raises(
        FormatError, match=r"a directory with notes\.txt; wanted \*\.safetensors, 0/items or \.m"
    ):
        sniff(tmp_path)
    with pytest.raises(
        FormatError, match=r"nothing is there; wanted a checkpoint file or directory$"
    ):
        sniff(tmp_path / "absent")
    with pytest.raises(
        FormatError, match=r"^meta-llama/Llama-3-8B: nothing is there; .*\(hf download\)$"
    ):
        sniff("meta-llama/Llama-3-8B")
    os.mkfifo(tmp_path / "pipe.safetensors")  # opening it would block forever
    with pytest.raises(FormatError, match="not a file; wanted a regular file or a directory"):
        sniff(tmp_path / "pipe.safetensors")


def test_refuses_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(
        FormatError, match="format: 'pickle'; wanted 'safetensors', 'gguf', 'maxtext' or 'dcp'"
    ):
        open_source(tmp_path, "pickle")
    with pytest.raises(FormatError, match="format: ''; wanted 'safetensors', 'gguf', 'maxtext' or"):
        open_source(tmp_path, "")
    with pytest.raises(FormatError, match="format: 'gguf' cannot be written; 'safetensors', 'm"):
        create_sink(tmp_path / "out", "gguf", SPECS)


def test_a_library_that_is_absent_is_named_with_its_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"absent_: not .* 'xlayout-arrays\[port\]'"):
        require("absent_")


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_the_size_that_we_say(dtype: str) -> None:
    assert numpy_dtype(dtype).itemsize == DTYPES[dtype]
    assert str(numpy_dtype(dtype)) == dtype


def test_a_dtype_that_is_none_of_ours_is_refused() -> None:
    for name in ("float", "object", "U4", "float33"):  # numpy knows three of them
        with pytest.raises(FormatError, match=f"dtype: '{name}'; known are bool, int8, "):
            numpy_dtype(name)


@pytest.mark.parametrize("path", ["x.safetensors", "dcp"])
def test_headers_are_opened_without_any_framework(tmp_path: Path, path: str) -> None:
    with create_sink(tmp_path / path, Path(path).suffix[1:] or path, SPECS) as sink:
        sink.write("x", np.zeros(2, np.float32))
        sink.commit()
    program = (
        "import sys; from xlayout.port.formats import open_source; open_source(sys.argv[1]);"
        "print([m for m in ('numpy', 'torch', 'jax', 'tensorstore', 'gguf') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
