"""A safetensors sink takes every element once, refuses the rest, and leaves proper files."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from tests.port.formats.arrays import bits, save
from xlayout.errors import FormatError, PortError, ShapeError
from xlayout.port.formats import TensorSpec, create_sink, open_source


def test_commit_refuses_a_tensor_that_is_not_fully_written(tmp_path: Path) -> None:
    specs = {"x": TensorSpec("int8", (4, 2)), "y": TensorSpec("int8", ())}
    sink = create_sink(tmp_path / "out", "safetensors", specs)
    with sink:
        sink.write("x", np.zeros((3, 2), np.int8), (slice(0, 3), slice(0, 2)))
        with pytest.raises(
            PortError, match=r"2 tensors are not fully written: x lacks 2 .*; y lacks 1"
        ):
            sink.commit()
    assert not list(tmp_path.iterdir())
    with pytest.raises(PortError, match="committed or aborted"):
        sink.write("y", np.zeros((), np.int8))


def test_one_file_is_not_split_however_large(tmp_path: Path) -> None:
    arrays = {name: bits("int8", (4,)) for name in ("x", "y")}
    save(tmp_path / "a.safetensors", "safetensors", arrays, max_shard_size=4)
    with open_source(tmp_path / "a.safetensors") as source:
        assert source.tensors.keys() == arrays.keys()


def test_nothing_is_written_twice(tmp_path: Path) -> None:
    specs = {"x": TensorSpec("int8", (4,)), "y": TensorSpec("int8", ())}
    with create_sink(tmp_path / "out", "safetensors", specs) as sink:
        sink.write("x", np.zeros(2, np.int8), (slice(0, 2),))
        with pytest.raises(PortError, match=r"x: \[1:3\] meets \[0:2\], written before"):
            sink.write("x", np.zeros(2, np.int8), (slice(1, 3),))
        sink.write("y", np.zeros((), np.int8), ())
        with pytest.raises(PortError, match="y: a scalar that was written before"):
            sink.write("y", np.zeros((), np.int8))


def test_refuses_an_array_that_does_not_fit_its_region(tmp_path: Path) -> None:
    with create_sink(tmp_path / "out", "safetensors", {"x": TensorSpec("int8", (4,))}) as sink:
        with pytest.raises(ShapeError, match=r"x: int8\(3,\); the region is int8\(4,\)"):
            sink.write("x", np.zeros(3, np.int8))
        with pytest.raises(ShapeError, match=r"x: uint8\(4,\); the region is int8\(4,\)"):
            sink.write("x", np.zeros(4, np.uint8))
        with pytest.raises(KeyError, match="y"):
            sink.write("y", np.zeros(4, np.int8))


def test_refuses_what_the_format_cannot_hold(tmp_path: Path) -> None:
    spec = TensorSpec("int8", (1,))
    with pytest.raises(FormatError, match="x: complex128; safetensors can hold bool"):
        create_sink(tmp_path / "out", "safetensors", {"x": TensorSpec("complex128", (1,))})
    with pytest.raises(FormatError, match="'__metadata__' is reserved"):
        create_sink(tmp_path / "out", "safetensors", {"__metadata__": spec})
    with pytest.raises(FormatError, match="config: Object of type set"):
        create_sink(tmp_path / "out", "safetensors", {"x": spec}, config={"a": {1}})
    with pytest.raises(FormatError, match="one file has no place for a config"):
        create_sink(tmp_path / "x.safetensors", "safetensors", {"x": spec}, config={"a": 1})
    with pytest.raises(FormatError, match="one file has no place for a config"):
        create_sink(tmp_path / "x.safetensors", "safetensors", {"x": spec}, beside={"a": b"1"})
    with pytest.raises(FormatError, match="dtype: 'float33'; known are bool"):
        TensorSpec("float33", (1,))
    with pytest.raises(FormatError, match="every size must be 0 or more"):
        TensorSpec("int8", (-1,))
    assert not list(tmp_path.iterdir())


def test_refuses_a_header_that_no_reader_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"x": TensorSpec("int8", (1,))}
    monkeypatch.setattr("xlayout.port.formats.safetensors_header.MAX_HEADER", 120)
    create_sink(tmp_path / "out", "safetensors", spec).abort()  # it takes 120 with the padding
    monkeypatch.setattr("xlayout.port.formats.safetensors_header.MAX_HEADER", 119)
    with pytest.raises(FormatError, match="header: 120 bytes; 119 at most, so more files"):
        create_sink(tmp_path / "out", "safetensors", spec)


@pytest.mark.parametrize(
    ("size", "error"),
    [("5 XB", PortError), ("GB", PortError), (0, PortError), ("-1", PortError), (True, TypeError)],
)
def test_refuses_a_shard_size_that_is_none(
    tmp_path: Path, size: int | str, error: type[Exception]
) -> None:
    text = f"max_shard_size: {size!r}; wanted bytes, or text such as '512MiB' or '2GB'"
    with pytest.raises(error, match=f"^{text}$"):
        create_sink(tmp_path / "out", "safetensors", {}, max_shard_size=size)


def test_refuses_a_shard_size_beyond_all_disks(tmp_path: Path) -> None:
    text = f"max_shard_size: '{79 * '9'}; wanted bytes, or text such as '512MiB' or '2GB'"
    with pytest.raises(PortError, match=f"^{text}$"):
        create_sink(tmp_path / "out", "safetensors", {}, max_shard_size=400 * "9")


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_files_get_the_modes_that_the_umask_gives(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        arrays = {name: bits("int8", (64,)) for name in ("a", "b")}
        save(tmp_path / "out", "safetensors", arrays, max_shard_size=64, config={"a": 1})
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o777 & ~umask
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "out").iterdir()} == {0o666 & ~umask}


def test_a_checkpoint_of_nothing_is_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "out", "safetensors", {})
    with open_source(tmp_path / "out") as source:
        assert not source.tensors
        assert math.fsum(source.files.values()) == 64
