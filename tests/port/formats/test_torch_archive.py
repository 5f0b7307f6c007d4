"""An archive is believed only where its directory, its records and its size agree."""

from __future__ import annotations

import io
import re
import struct
import tempfile
import zipfile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from xlayout.errors import FormatError
from xlayout.port.formats.base import TensorSpec
from xlayout.port.formats.torch_archive import Record, read_archive
from xlayout.port.formats.torch_archive_write import render_archive

DATA = b"\x01\x02\x03\x04\x05"


def records(raw: bytes) -> dict[str, Record]:
    before = b"before"
    with tempfile.TemporaryFile() as file:
        file.write(before + raw + b"after")
        file.flush()
        return read_archive(file.fileno(), len(before), len(raw), where="f")


def torchs() -> bytes:
    file = io.BytesIO()
    torch.save(torch.tensor(list(DATA), dtype=torch.int8), file)
    return file.getvalue()


def ours() -> bytes:
    front, back = render_archive(TensorSpec("int8", (5,)))
    return front + DATA + back


def zipped(start: int = 0, **contents: bytes) -> bytes:
    file = io.BytesIO(b"." * start)
    file.seek(start)
    with zipfile.ZipFile(file, "w") as made:
        for name, content in contents.items():
            made.writestr(name.replace("_", "/"), content)
    return file.getvalue()


@pytest.mark.parametrize("make", [torchs, ours, lambda: zipped(archive_data_0=DATA)])
def test_records_are_found_whoever_made_them(make: object) -> None:
    raw = make()  # type: ignore[operator]
    found = records(raw)["data/0"]
    assert raw[found.offset : found.offset + found.size] == DATA


def test_the_directory_may_be_in_another_order_than_the_records() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name in "abc":
            made.writestr(f"archive/{name}", name.encode() * 9)
        made.filelist.reverse()
    found = records(file.getvalue())
    assert list(found) == ["c", "b", "a"]
    assert [file.getvalue()[at.offset : at.offset + at.size] for at in found.values()] == [
        b"c" * 9,
        b"b" * 9,
        b"a" * 9,
    ]


class Stream(io.BytesIO):
    """A file whose writer cannot go back."""

    def tell(self) -> int:
        raise OSError("a stream")


@pytest.mark.parametrize("wide", [False, True])
def test_a_stream_has_checksums_behind_its_records(wide: bool) -> None:
    file = Stream()
    with zipfile.ZipFile(file, "w") as made:
        for name in ("archive/data/0", "archive/more"):
            with made.open(name, "w", force_zip64=wide) as record:
                record.write(DATA)
    raw = file.getvalue()
    assert raw.count(b"PK\7\x08") == 2
    found = records(raw)
    assert [raw[at.offset : at.offset + at.size] for at in found.values()] == [DATA, DATA]


def test_an_empty_archive_has_no_records() -> None:
    assert records(zipped()) == {}


def header(raw: bytes, name: bytes) -> int:
    """Where the header of a record begins."""
    return raw.index(name) - 30


def patched(raw: bytes, at: int, new: bytes) -> bytes:
    return raw[:at] + new + raw[at + len(new) :]


TORCHS, OURS = torchs(), ours()
HERE = header(TORCHS, b"archive/data/0")
EXTRA = struct.unpack_from("<H", TORCHS, HERE + 28)[0]
BEGIN = struct.unpack("<Q", TORCHS[-98 + 48 : -98 + 56])[0]
PLAIN = zipped(archive_a=b"1", archive_b=b"2")
CENTRAL = PLAIN.index(b"PK\1\2")


def far() -> bytes:
    """An archive of ours, the first record of whose directory begins beyond the end of any file."""
    first, end = OURS.index(b"PK\1\2"), OURS.index(b"PK\6\6")
    entry = OURS.rindex(b"PK\1\2")
    said = patched(patched(OURS, entry + 24, struct.pack("<I", 5)), entry + 42, b"\xff" * 4)
    said = patched(said, end - 8, b"\xff" * 8)
    return said[:first] + said[entry:end] + said[first:entry] + said[end:]


WRONG = {
    "no header": (
        patched(TORCHS, HERE, b"PK\3\5"),
        f"'archive/data/0' does not begin at byte {HERE}; wanted a header with its name",
    ),
    "another name": (
        patched(TORCHS, HERE + 30, b"archivf"),
        f"'archive/data/0' does not begin at byte {HERE}; wanted a header with its name",
    ),
    "a header in the directory": (
        patched(patched(PLAIN, CENTRAL + 97, bytes(4)), CENTRAL + 42, struct.pack("<I", CENTRAL)),
        f"'archive/a' does not begin at byte {CENTRAL}",
    ),
    "a header beyond all files": (
        far(),
        f"'archive/data/0' does not begin at byte {2**64 - 1}",
    ),
    "eight bytes too early": (
        patched(TORCHS, HERE + 28, struct.pack("<H", EXTRA - 8)),
        "'archive/data/0' ends at byte ",
    ),
    "a byte too late": (
        patched(TORCHS, HERE + 28, struct.pack("<H", EXTRA + 1)),
        "'archive/data/0' ends at byte ",
    ),
    "two folders": (
        zipped(archive_a=b"1", other_b=b"2"),
        "'other/b' is there twice, or in a folder of its own; wanted one folder of records",
    ),
    "bytes before": (
        zipped(start=4, archive_a=b"1"),
        "bytes before the first record; wanted none",
    ),
    "a directory elsewhere": (
        patched(PLAIN, len(PLAIN) - 6, struct.pack("<I", CENTRAL - 1)),
        f"a directory at bytes {CENTRAL - 1}:{len(PLAIN) - 23}; wanted one that ends at "
        f"{len(PLAIN) - 22}",
    ),
    "another directory in 64 bits": (
        patched(TORCHS, len(TORCHS) - 50, struct.pack("<Q", BEGIN - 1)),
        f"a directory at bytes {BEGIN - 1}:",
    ),
    "a directory of other things": (
        patched(PLAIN, CENTRAL, b"PK\1\3"),
        "record 0 of the directory: begins with b'PK\\x01\\x03'; wanted a zip archive",
    ),
    "a name that is no text": (
        patched(PLAIN, CENTRAL + 46, b"\xff"),
        "record 0 of the directory: 'utf-8' codec can't decode byte 0xff",
    ),
    "a record beyond the directory": (
        patched(PLAIN, CENTRAL + 30, b"\xff"),
        "record 0 of the directory: leaves the directory",
    ),
    "half a record": (
        patched(PLAIN, len(PLAIN) - 10, struct.pack("<II", 120, CENTRAL - 120 + 110)),
        "record 0 of the directory: begins with ",
    ),
    "a wide number that is not there": (
        patched(PLAIN, CENTRAL + 42, b"\xff" * 4),
        "record 0 of the directory: a number of 64 bits that is not there",
    ),
    "a size beyond all files": (
        OURS.replace(struct.pack("<QQ", 5, 5), b"\xff" * 16),
        f"'archive/data/0' ends at byte {OURS.index(DATA + b'PK') + 2**64 - 1}; wanted ",
    ),
    "encrypted": (
        patched(PLAIN, CENTRAL + 8, b"\1"),
        "'archive/a' is compressed or encrypted; wanted records stored as they are",
    ),
    "compressed to its own size": (
        patched(PLAIN, CENTRAL + 10, b"\x08"),
        "'archive/a' is compressed or encrypted",
    ),
    "of two sizes": (
        patched(PLAIN, CENTRAL + 20, b"\2"),
        "'archive/a' is compressed or encrypted",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_refuses_what_contradicts_itself(case: str) -> None:
    raw, text = WRONG[case]
    with pytest.raises(FormatError, match=f"^f: .*{re.escape(text)}"):
        records(raw)


@pytest.mark.parametrize("raw", [TORCHS, OURS, PLAIN], ids=["torch", "ours", "zip"])
def test_an_archive_that_is_cut_short_anywhere_is_refused(raw: bytes) -> None:
    for stop in range(0, len(raw), 3):
        with pytest.raises(FormatError, match=r"^f: "):
            records(raw[:stop])


@given(at=st.integers(0, len(OURS) - 1), new=st.binary(min_size=1, max_size=16))
def test_any_change_is_refused_or_leaves_the_bytes_where_they_are(at: int, new: bytes) -> None:
    try:
        found = records(patched(OURS, at, new)[: len(OURS)])
    except FormatError:
        return
    if "data/0" in found:
        assert found["data/0"].offset + found["data/0"].size <= len(OURS)


def test_every_bit_of_an_archive_of_ours_counts_or_changes_nothing() -> None:
    good = records(OURS)
    first, stop = OURS.index(DATA + b"PK"), OURS.index(DATA + b"PK") + 5
    for at in (at for at in range(len(OURS)) if not first <= at < stop):
        try:
            found = records(patched(OURS, at, bytes([OURS[at] ^ 1 << at % 8])))
        except FormatError:
            continue
        assert found.get("data/0") in (good["data/0"], None), at
