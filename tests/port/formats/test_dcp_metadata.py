"""The metadata of a DCP directory is believed only as far as nothing contradicts it."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

from tests.port.formats.arrays import bits
from tests.port.formats.dcp_saves import Evil, change, save_dcp, to_torch
from xlayout.errors import FormatError
from xlayout.port.formats import open_source
from xlayout.port.formats.dcp_metadata import parse_metadata
from xlayout.port.formats.dcp_names import ALLOWED

X = MetadataIndex("x", (0, 0))
FILE = "__0_0.distcp"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A tensor "x" of 4 × 3, a scalar and a number that is no tensor."""
    state = {"x": to_torch(bits("float32", (4, 3))), "s": torch.tensor(1.0), "step": 3}
    return save_dcp(tmp_path / "d", state)


def tensor(metadata: Any) -> Any:
    return metadata.state_dict_metadata["x"]


def chunks(*boxes: tuple[tuple[int, ...], tuple[int, ...]]) -> Callable[[Any], None]:
    """Let "x" have these chunks, (start, size), each with the bytes of the whole."""

    def how(metadata: Any) -> None:
        tensor(metadata).chunks[:] = [
            ChunkStorageMetadata(torch.Size(start), torch.Size(size)) for start, size in boxes
        ]
        whole = metadata.storage_data.pop(X)
        for start, _ in boxes:
            metadata.storage_data[MetadataIndex("x", start)] = whole

    return how


def put(get: Callable[[Any], Any], **values: Any) -> Callable[[Any], None]:
    """Set attributes of a part of the metadata."""

    def how(metadata: Any) -> None:
        for name, value in values.items():
            object.__setattr__(get(metadata), name, value)

    return how


def info(metadata: Any) -> Any:
    return metadata.storage_data[X]


def index(metadata: Any) -> Any:
    return next(key for key in metadata.storage_data if key.index == 0 and key.fqn == "x")


WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "a hole": (chunks(((0, 0), (3, 3))), "its element at [3, 0] is in 0 chunks; wanted each"),
    "no chunk at all": (chunks(), "its element at [0, 0] is in 0 chunks"),
    "an overlap": (
        chunks(((0, 0), (3, 3)), ((2, 0), (2, 3))),
        "its element at [2, 0] is in 2 chunks; wanted each element in one",
    ),
    "the same chunk twice": (
        chunks(((0, 0), (4, 3)), ((0, 0), (4, 3))),
        "its element at [0, 0] is in 2 chunks",
    ),
    "a chunk outside": (
        chunks(((0, 0), (4, 2)), ((0, 2), (4, 2))),
        "a chunk of (4, 2) at (0, 2); wanted one within (4, 3)",
    ),
    "a chunk of other axes": (
        put(lambda m: tensor(m).chunks[0], sizes=torch.Size((12,))),
        "a chunk of (12,) at (0, 0); wanted one of 2 axes",
    ),
    "a chunk at other axes": (
        put(lambda m: tensor(m).chunks[0], offsets=torch.Size((0,))),
        "a chunk of (4, 3) at (0,); wanted one of 2 axes",
    ),
    "a chunk without bytes": (
        lambda m: m.storage_data.pop(X),
        "its chunk at (0, 0) lies in no file; wanted an item for each",
    ),
    "a chunk with two": (
        put(index, offset=torch.Size(()), fqn="s"),
        "'s': two items for the chunk at (); wanted one",
    ),
    "too few bytes": (
        put(info, length=47),
        "its chunk at (0, 0) has 47 bytes in a file; wanted 48 or more",
    ),
    "another shape": (put(tensor, size=torch.Size((5, 3))), "its element at [4, 0] is in 0 chunks"),
    "a size that is none": (put(tensor, size=(4, 3)), "'x': size None; wanted integers from 0"),
    "a negative size": (put(tensor, size=torch.Size((-4, 3))), "'x': size (-4, 3); wanted integ"),
    "sizes that are no integers": (
        lambda m: setattr(tensor(m), "chunks", [None]),
        "'x': None where a ChunkStorageMetadata stands; wanted one",
    ),
    "chunks that are no list": (put(tensor, chunks=()), "'x': chunks (); wanted a list"),
    "more axes than numpy has": (
        put(tensor, size=torch.Size((1,) * 65)),
        "wanted 64 axes at most, and less than 2^63 bytes",
    ),
    "more bytes than there can be": (
        put(tensor, size=torch.Size((1 << 40, 1 << 40))),
        "shape (1099511627776, 1099511627776); wanted 64 axes at most",
    ),
    "more bytes beside a zero": (
        put(tensor, size=torch.Size((1 << 40, 0, 1 << 40))),
        "wanted 64 axes at most, and less than 2^63 bytes",
    ),
    "a dtype that we do not know": (
        put(lambda m: tensor(m).properties, dtype=torch.complex32),
        "'x': dtype 'torch.complex32'; known are bool, int8",
    ),
    "a sparse tensor": (
        put(lambda m: tensor(m).properties, layout=torch.sparse_coo),
        "'x': layout ('torch.sparse_coo',); wanted that of a dense tensor, 'torch.strided'",
    ),
    "properties that are none": (
        put(tensor, properties=3),
        "'x': properties None; wanted dtype, layout and three or four more",
    ),
    "extensions": (
        put(info, transform_descriptors=["stream.zstd"]),
        "'x': stored by way of ['stream.zstd']; wanted a checkpoint without extensions",
    ),
    "a negative offset": (put(info, offset=-1), "'x': bytes 1577 from -1; wanted integers from 0"),
    "a negative length": (put(info, length=-1), "'x': bytes -1 from"),
    "a length that is no integer": (put(info, length=1577.0), "'x': bytes 1577.0 from"),
    "an offset that is no integer": (put(info, offset=True), "'x': bytes 1577 from True"),
    "a number that Python does not show": (
        put(info, offset=1 << 20_000),
        "the instruction b'\\x8b'; wanted one that picklers",
    ),
    "an item of no tensor's name": (put(index, fqn=3), "storage_data of 3; wanted a name"),
    "an item of another kind": (
        lambda m: m.storage_data.update({X: index(m)}),
        "MetadataIndex(…) where a _StorageInfo stands; wanted one",
    ),
    "an item that is none": (
        lambda m: m.storage_data.update({X: "here"}),
        "'here' where a _StorageInfo stands; wanted one",
    ),
    "a tensor that is none": (
        lambda m: m.state_dict_metadata.update(x="here"),
        "'x': 'here' where a TensorStorageMetadata stands; wanted one",
    ),
    "a name that is none": (
        lambda m: m.state_dict_metadata.update({3: tensor(m)}),
        "wanted a dict of names",
    ),
    "no storage": (put(lambda m: m, storage_data=None), "storage_data None; wanted a dict"),
    "no tensors": (put(lambda m: m, state_dict_metadata=["x"]), "state_dict_metadata ['x']; want"),
    "a later version": (put(lambda m: m, version="2.0"), "version '2.0'; wanted '1.0.0'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refuses_metadata_that_cannot_be(saved: Path, case: str) -> None:
    how, text = WRONG[case]
    change(saved, how)
    with pytest.raises(
        FormatError, match=f"^{re.escape(str(saved))}/.metadata: .*{re.escape(text)}"
    ):
        open_source(saved)


@pytest.mark.parametrize(
    "path",
    ["../x", "/x", "a/b", "..", ".", "", "a\0b", "a\\b", "C:x", "\ud800", None, b"x", "x" * 256],
)
def test_refuses_files_outside_the_directory(saved: Path, path: object) -> None:
    change(saved, put(info, relative_path=path))
    with pytest.raises(FormatError, match="wanted the plain name of a file in this directory"):
        open_source(saved)


def test_refuses_links_that_leave_the_directory(saved: Path, tmp_path: Path) -> None:
    for name in (FILE, ".metadata"):
        (saved / name).rename(tmp_path / name)
        (saved / name).symlink_to(tmp_path / name)
        with pytest.raises(
            FormatError, match=rf"{re.escape(name)}: a link to .*; wanted a file in"
        ):
            open_source(saved)
        (saved / name).unlink()
        (tmp_path / name).rename(saved / name)
    open_source(saved).close()


def test_refuses_files_that_are_missing_or_cut_short(saved: Path) -> None:
    file = saved / FILE
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    size = len(content)
    text = f"{FILE}: {size - 1} bytes, of which the metadata gives a chunk those up to {size}"
    with pytest.raises(FormatError, match=re.escape(text)):
        open_source(saved)
    file.unlink()
    with pytest.raises(FormatError, match=rf"{FILE}: no such file; wanted a regular file"):
        open_source(saved)
    os.mkfifo(file)
    with pytest.raises(FormatError, match=rf"{FILE}: not a file; wanted a regular file"):
        open_source(saved)


def test_a_file_that_is_cut_short_later_is_said_to_be(saved: Path) -> None:
    with open_source(saved) as source:
        source.read("x")
        os.truncate(saved / FILE, 1000)
        with pytest.raises(
            FormatError, match=r"distcp: 'x': no byte at \d+; the file was cut short"
        ):
            source.read("x")


def test_metadata_that_is_cut_short_anywhere_is_refused(saved: Path) -> None:
    raw = (saved / ".metadata").read_bytes()
    for stop in range(0, len(raw), 7):
        with pytest.raises(FormatError, match=r"^f: "):
            parse_metadata(raw[:stop], where="f")


def test_refuses_metadata_of_absurd_size(saved: Path) -> None:
    os.truncate(saved / ".metadata", (1 << 30) + 1)
    with pytest.raises(FormatError, match=r"1,073,741,825 bytes; wanted at most 1,073,741,824"):
        open_source(saved)


@pytest.mark.parametrize("where", ["itself", "planner_data", "storage_meta", "a key"])
def test_what_a_hostile_one_would_run_is_not_run(
    saved: Path, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if where == "itself":
        (saved / ".metadata").write_bytes(pickle.dumps(Evil()))
    elif where == "a key":
        change(saved, lambda m: m.storage_data.update({Evil(): 1}))
    else:
        change(saved, lambda m: setattr(m, where, {"x": Evil()}))
    with pytest.raises(FormatError, match=r"\.metadata: names 'posix\.system', which has no place"):
        open_source(saved)
    assert not Path("owned").exists()
    pickle.loads((saved / ".metadata").read_bytes())
    assert Path("owned").exists(), "the attack works on pickle itself"


def test_every_name_that_is_allowed_is_one_that_torch_has() -> None:
    for name in ALLOWED - {"pathlib._local.PosixPath", "pathlib._local.WindowsPath"}:
        module, _, kind = name.rpartition(".")
        assert getattr(__import__(module, fromlist=[kind]), kind) is not None


@pytest.mark.parametrize("of", ["a path", "a text", "nothing"])
def test_where_it_was_saved_is_not_asked(saved: Path, of: str) -> None:
    where = {"a path": Path("/elsewhere"), "a text": "s3://bucket", "nothing": None}[of]
    change(saved, lambda m: setattr(m.storage_meta, "checkpoint_id", where))
    with open_source(saved) as source:
        assert source.notes == ("step",)
    change(
        saved, lambda m: [setattr(m, k, None) for k in ("storage_meta", "version", "planner_data")]
    )
    with open_source(saved) as source:
        assert source.read("s") == np.float32(1)


def test_items_of_nothing_are_left_alone(saved: Path) -> None:
    """A rank that got nothing has an empty chunk, at a place where another may have one too."""
    empty = ChunkStorageMetadata(torch.Size((4, 0)), torch.Size((0, 3)))
    change(saved, lambda m: tensor(m).chunks.extend([empty, empty]))
    change(
        saved,
        lambda m: m.storage_data.update({MetadataIndex("gone", (0,)): _StorageInfo("f", 0, 9)}),
    )
    with open_source(saved) as source:
        assert source.read("x").shape == (4, 3)
        assert source.files.keys() == {".metadata", FILE}
