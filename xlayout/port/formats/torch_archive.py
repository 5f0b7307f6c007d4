"""The zip archive that `torch.save` makes of one tensor, as ranges of bytes in a file.

All records are stored uncompressed, so a tensor's bytes are in one piece. The central directory is
trusted only as far as the archive's size and the records' own headers agree with it.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import NoReturn

from xlayout.errors import FormatError

__all__ = ["CENTRAL", "END", "END64", "LOCAL", "LOCATOR", "WIDE", "Record", "read_archive"]

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
WIDE = 0xFFFFFFFF
"""The placeholder for a 64-bit number, which is in the extra field."""

_TAIL = END64.size + LOCATOR.size + END.size

_BEHIND = (16, 24)  # bytes of the checksum and sizes after a record, with their signature
_MOST = 1 << 16  # bytes of a directory; that of one tensor has a few hundred


@dataclass(frozen=True, slots=True)
class Record:
    """Where in its archive the bytes of a record begin, and how many there are."""

    offset: int
    size: int


def read_archive(handle: int, start: int, length: int, /, *, where: str) -> dict[str, Record]:
    """Return the records of an archive in a file, by name without the folder that they share.

    Args:
        handle: The file.
        start: The archive's first byte.
        length: Bytes of the archive.
        where: What to call it in errors.

    Raises:
        FormatError: It is not an archive, or not as torch makes them: a record is compressed or
            encrypted, occurs twice, or does not end where the next begins.

    >>> import io, tempfile, zipfile
    >>> with tempfile.TemporaryFile() as file:
    ...     with zipfile.ZipFile(file, "w") as archive:
    ...         archive.writestr("archive/data/0", b"hello")
    ...     size = file.tell()
    ...     read_archive(file.fileno(), 0, size, where="x")
    {'data/0': Record(offset=44, size=5)}
    """

    def refuse(what: str, wanted: str) -> NoReturn:
        raise FormatError(f"{where}: {what}; wanted {wanted}")

    begin, size = _directory(handle, start, length, where)
    if size > _MOST:
        refuse(f"a directory of {size} bytes", f"at most {_MOST}, as for one tensor")
    entries = _entries(os.pread(handle, size, start + begin), where)
    if min((entry[1] for entry in entries), default=0):
        refuse("bytes before the first record", "none")
    ends = sorted([*(entry[1] for entry in entries), begin])
    records: dict[str, Record] = {}
    for path, offset, size, plain in entries:
        shown = f"{path!r:.200}"
        if not plain:
            refuse(f"{shown} is compressed or encrypted", "records stored as they are")
        raw = path.encode()
        head = os.pread(handle, LOCAL.size + len(raw), start + offset) if offset < begin else b""
        if head[:4] != b"PK\3\4" or head[LOCAL.size :] != raw:
            refuse(f"{shown} does not begin at byte {offset}", "a header with its name")
        named, extra = LOCAL.unpack_from(head)[9:]
        first = offset + LOCAL.size + named + extra
        stop, limit = first + size, next(end for end in ends if end > offset)
        # A streaming writer puts a record's checksum after its bytes.
        trailer = limit - stop in _BEHIND and os.pread(handle, 4, start + stop) == b"PK\7\x08"
        if stop != limit and not trailer:
            refuse(f"{shown} ends at byte {stop}", f"{limit}, where the next begins")
        folder, _, name = path.partition("/")
        if folder != entries[0][0].partition("/")[0] or name in records:
            refuse(f"{shown} is there twice, or in a folder of its own", "one folder of records")
        records[name] = Record(first, size)
    return records


def _directory(handle: int, start: int, length: int, where: str) -> tuple[int, int]:
    """Return where in the archive its central directory begins, and its length."""
    tail = os.pread(handle, min(length, _TAIL), start + max(length - _TAIL, 0))
    end = tail[-END.size :]
    if len(end) < END.size or end[:4] != b"PK\5\6" or end[-2:] != b"\0\0":
        raise FormatError(
            f"{where}: no end of an archive in {length} bytes; wanted what torch.save writes, "
            "the file may be cut short"
        )
    _, _, _, _, _, size, begin, _ = END.unpack(end)
    stop = length - END.size
    locator = tail[-END.size - LOCATOR.size : -END.size]
    if locator[:4] == b"PK\6\7":
        stop = length - _TAIL
        if tail[:4] != b"PK\6\6" or LOCATOR.unpack(locator)[2] != stop:
            raise FormatError(f"{where}: no end of 64 bits at byte {stop}; wanted it just before")
        *_, size, begin = END64.unpack_from(tail)
    if begin + size != stop:
        raise FormatError(
            f"{where}: a directory at bytes {begin}:{begin + size}; wanted one that ends at {stop}"
        )
    return begin, size


def _entries(raw: bytes, where: str) -> list[tuple[str, int, int, bool]]:
    """Return each record's path, header offset, size, and whether it is stored plainly."""
    entries: list[tuple[str, int, int, bool]] = []
    position = 0
    while position < len(raw):
        try:
            fields = CENTRAL.unpack_from(raw, position)
            magic, _, _, flags, method, _, _, _, packed, size, named, extra, comment = fields[:13]
            if magic != b"PK\1\2":
                raise ValueError(f"begins with {magic!r}")
            middle = position + CENTRAL.size + named
            path = raw[position + CENTRAL.size : middle].decode()
            position = middle + extra + comment
            if position > len(raw):
                raise ValueError("leaves the directory")
            size, packed, offset = _widened(raw[middle : middle + extra], size, packed, fields[16])
        except (struct.error, ValueError) as error:
            raise FormatError(
                f"{where}: record {len(entries)} of the directory: {error}; wanted a zip archive"
            ) from error
        entries.append((path, offset, size, method == 0 and not flags & 1 and packed == size))
    return entries


def _widened(extra: bytes, *numbers: int) -> list[int]:
    """Return the numbers, taking those that do not fit in 32 bits from the extra field."""
    found: list[int] = []
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<2H", extra)
        if kind == 1:
            found = [n for (n,) in struct.iter_unpack("<Q", extra[4 : 4 + size // 8 * 8])]
        extra = extra[4 + size :]
    wide = iter(found)
    try:
        return [next(wide) if n == WIDE else n for n in numbers]
    except StopIteration:
        raise ValueError("a number of 64 bits that is not there") from None
