"""What an item of a chunk holds must be that chunk, or reading it says what it is instead."""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.port.formats.arrays import bits, same
from tests.port.formats.dcp_saves import Evil, change, save_dcp, to_torch
from xlayout.errors import FormatError
from xlayout.port.formats import open_source
from xlayout.port.formats.pickle_tree import Made, Name, Stored
from xlayout.port.formats.pickle_write import write_pickle

X = bits("float32", (4, 3))
FILE = "__0_0.distcp"


def saved(path: Path, item: bytes) -> Path:
    """A directory whose only tensor "x" is serialized as `item`."""
    save_dcp(path / "d", {"x": to_torch(X)})
    (path / "d" / FILE).write_bytes(b"before" + item + b"after")

    def how(metadata: Any) -> None:
        (info,) = metadata.storage_data.values()
        info.offset, info.length = len(b"before"), len(item)

    return change(path / "d", how)


def refuses(path: Path, item: bytes, text: str) -> None:
    with open_source(saved(path, item)) as source:
        assert source.tensors["x"].shape == (4, 3)
        with pytest.raises(
            FormatError, match=f"{FILE}: 'x': its chunk at \\[0, 0\\]: .*{re.escape(text)}"
        ):
            source.read("x")


def torch_saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


GOOD = torch_saved(to_torch(X))
RECORDS = {
    info.filename: zipfile.ZipFile(io.BytesIO(GOOD)).read(info)
    for info in zipfile.ZipFile(io.BytesIO(GOOD)).infolist()
}
DATA = "archive/data/0"


def archive(
    records: dict[str, bytes] | None = None,
    method: int = zipfile.ZIP_STORED,
    **changed: bytes | None,
) -> bytes:
    """An archive as others write it, with records changed, or omitted if None."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        for name, content in ((RECORDS | (records or {})) | changed).items():
            if content is not None:
                made.writestr(name, content)
    return file.getvalue()


def test_archives_of_another_maker_are_read_too(tmp_path: Path) -> None:
    with open_source(saved(tmp_path, archive())) as source:
        assert same(source.read("x"), X)
    with open_source(saved(tmp_path, archive({"archive/byteorder": None}))) as source:  # type: ignore[dict-item]
        assert same(source.read("x"), X)


WRONG_VALUES: dict[str, tuple[Callable[[], object], str]] = {
    "another shape": (
        lambda: torch.zeros(3, 4),
        "TensorSpec(dtype='float32', shape=(3, 4)) and 48 bytes; wanted TensorSpec(",
    ),
    "another dtype": (
        lambda: torch.zeros(4, 3, dtype=torch.int32),
        "(dtype='int32', shape=(4, 3))",
    ),
    "two tensors": (lambda: [torch.zeros(4, 3)] * 2, "makes [torch._utils._rebuild_tensor_v2(…),"),
    "no tensor": (lambda: 3, "makes 3; wanted a plain tensor"),
    "gaps": (
        lambda: torch.zeros(4, 6)[:, ::2],
        "strides (6, 2) from 0 in 96 bytes; wanted 48 bytes without gaps for shape (4, 3)",
    ),
    "a part": (lambda: torch.zeros(5, 3)[1:], "strides (3, 1) from 3 in 60 bytes; wanted 48 bytes"),
    "a conjugate": (
        lambda: torch.zeros(4, 3, dtype=torch.complex64).conj(),
        "a view that is yet to be computed: [{'conj': True}]; wanted a tensor that was resolved",
    ),
    "a parameter": (
        lambda: torch.nn.Parameter(torch.zeros(4, 3)),
        "names 'torch._utils._rebuild_parameter', which has no place in it; nothing was run",
    ),
    "a sparse tensor": (
        lambda: torch.zeros(4, 3).to_sparse(),
        "names 'torch._utils._rebuild_sparse_tensor', which has no place in it",
    ),
}


@pytest.mark.parametrize("case", WRONG_VALUES)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_refuses_an_item_of_something_else(tmp_path: Path, case: str) -> None:
    make, text = WRONG_VALUES[case]
    refuses(tmp_path, torch_saved(make()), text)


@pytest.mark.parametrize(
    "make",
    [lambda: torch_saved(Evil()), lambda: archive({"archive/data.pkl": pickle.dumps(Evil())})],
)
def test_what_a_hostile_item_would_run_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    item = make()
    refuses(tmp_path, item, "names 'posix.system', which has no place in it; nothing was run")
    assert not Path("owned").exists()
    torch.load(io.BytesIO(item), weights_only=False)
    assert Path("owned").exists(), "the attack works on torch itself"


def tensor_pickle(*args: object) -> bytes:
    return write_pickle(Made(Name("torch._utils._rebuild_tensor_v2"), args))


def stored(kind: str = "torch.FloatStorage", key: object = "0", count: object = 12) -> object:
    return Stored(("storage", Name(kind), key, "cpu", count))


def later_pickle(dtype: object) -> bytes:
    """The pickle of a dtype that has no storage class of its own."""
    args = (stored("torch.storage.UntypedStorage"), 0, (4, 3), (3, 1), False, None, dtype)
    return write_pickle(Made(Name("torch._utils._rebuild_tensor_v3"), args))


WRONG_PICKLES: dict[str, tuple[bytes, str]] = {
    "too few arguments": (
        tensor_pickle(stored(), 0, (4, 3)),
        "makes torch._utils._rebuild_tensor_v2",
    ),
    "too many arguments": (
        tensor_pickle(stored(), 0, (4, 3), (3, 1), False, None, None, None),
        "makes torch._utils._rebuild_tensor_v2",
    ),
    "too few arguments of the later kind": (
        write_pickle(Made(Name("torch._utils._rebuild_tensor_v3"), (stored(), 0, (4, 3)))),
        "makes torch._utils._rebuild_tensor_v3",
    ),
    "no storage": (
        tensor_pickle(1, 0, (4, 3), (3, 1), False, None),
        "a storage None; wanted the one",
    ),
    "another storage": (
        tensor_pickle(stored(key="1"), 0, (4, 3), (3, 1), False, None),
        "a storage ('storage', 'torch.FloatStorage', '1', 'cpu', 12); wanted the one named '0'",
    ),
    "another count": (
        tensor_pickle(stored(count=13), 0, (4, 3), (3, 1), False, None),
        "strides (3, 1) from 0 in 52 bytes",
    ),
    "a dtype that is none": (
        tensor_pickle(stored("torch.storage.UntypedStorage"), 0, (4, 3), (3, 1), False, None),
        "a dtype None in torch.storage.UntypedStorage; wanted one of bool",
    ),
    "a dtype that is a list": (
        later_pickle([]),
        "a dtype [] in torch.storage.UntypedStorage; wanted one of bool",
    ),
    "a dtype that is too deep to be looked up": (
        later_pickle([]).replace(b"](e", b")" + b"\x85" * 60_000),
        "a dtype ((((...),),),) in torch.storage.UntypedStorage",
    ),
    "more bytes than Python shows": (
        tensor_pickle(stored(), 0, (1 << 2000,) * 12, (1,) * 12, False, None),
        "wanted 64 axes at most, and less than 2^63 bytes",
    ),
    "a shape that is a list": (
        tensor_pickle(stored(), 0, [4, 3], (3, 1), False, None),
        "shape [4, 3], strides (3, 1); wanted as many integers from 0",
    ),
    "fewer strides": (
        tensor_pickle(stored(), 0, (4, 3), (3,), False, None),
        "shape (4, 3), strides (3,); wanted as many integers from 0",
    ),
    "a negative stride": (
        tensor_pickle(stored(), 0, (4, 3), (-3, 1), False, None),
        "shape (4, 3), strides (-3, 1); wanted as many integers from 0",
    ),
    "an offset": (
        tensor_pickle(stored(), 1, (4, 3), (3, 1), False, None),
        "strides (3, 1) from 1 in 48 bytes",
    ),
}


@pytest.mark.parametrize("case", WRONG_PICKLES)
def test_refuses_a_pickle_of_something_else(tmp_path: Path, case: str) -> None:
    raw, text = WRONG_PICKLES[case]
    refuses(tmp_path, archive({"archive/data.pkl": raw}), text)


WRONG_RECORDS: dict[str, tuple[Callable[[], bytes], str]] = {
    "big-endian": (
        lambda: archive({"archive/byteorder": b"big"}),
        "byte order b'big'; wanted little-endian values",
    ),
    "fewer bytes": (lambda: archive({DATA: X.tobytes()[:-1]}), "and 47 bytes; wanted"),
    "no bytes": (lambda: archive({DATA: None}), "and no bytes; wanted"),  # type: ignore[dict-item]
    "no pickle": (lambda: archive({"archive/data.pkl": None}), "cut short at byte 0"),  # type: ignore[dict-item]
    "compressed": (
        lambda: archive(method=zipfile.ZIP_DEFLATED),
        "'archive/data.pkl' is compressed or encrypted; wanted records stored as they are",
    ),
    "two folders": (
        lambda: archive({"other/data/0": b""}),
        "'other/data/0' is there twice, or in a folder of its own; wanted one folder of records",
    ),
    "twice": (
        lambda: archive({"archivf/data/0": b""}).replace(b"archivf", b"archive"),
        "'archive/data/0' is there twice, or in a folder of its own",
    ),
    "too many": (
        lambda: archive({f"archive/{i}": b"" for i in range(1500)}),
        "a directory of 8",
    ),
    "cut short": (lambda: GOOD[:-1], "no end of an archive in "),
    "hardly begun": (lambda: b"PK\3\4" * 12, "no end of an archive in 48 bytes; wanted what torch"),
    "a remark at the end": (lambda: GOOD[:-2] + b"\1\0", "no end of an archive in "),
    "cut short inside": (
        lambda: GOOD[:64] + GOOD[128:],
        "no end of 64 bits at byte ",
    ),
    "neither form": (
        lambda: b"\xff" * 60,
        "neither an archive of torch.save nor a safetensors file",
    ),
}


@pytest.mark.parametrize("case", WRONG_RECORDS)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_refuses_an_archive_of_something_else(tmp_path: Path, case: str) -> None:
    make, text = WRONG_RECORDS[case]
    refuses(tmp_path, make(), text)


def test_no_byte_of_an_archive_may_be_changed_without_an_error_or_the_same_tensor(
    tmp_path: Path,
) -> None:
    """Except for the tensor's own: whatever changes, only its 48 bytes are ever returned."""
    path = saved(tmp_path, GOOD)
    content = bytearray((path / FILE).read_bytes())
    data = content.index(X.tobytes())
    for at in range(6, 6 + len(GOOD)):
        if data <= at < data + X.nbytes:
            continue
        broken = content[:]
        broken[at] ^= 1 << at % 8
        (path / FILE).write_bytes(broken)
        with open_source(path) as source:
            try:
                found = source.read("x")
            except FormatError:
                continue
            assert same(found, X), at
