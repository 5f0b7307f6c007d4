"""The GGUF header, treated as hostile: metadata and tensor places, checked against the file's size.

Little-endian: "GGUF", version, counts, then key-value pairs, then one record per tensor, then the
data from the next multiple of the alignment. The `gguf` package reads this too, but maps the whole
file and trusts counts that the file cannot hold; here every length is checked before it is read.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from xlayout.errors import FormatError
from xlayout.port.formats.base import require

__all__ = ["Header", "Record", "parse_header"]

_VERSIONS = (2, 3)
_MAX_AXES = 8
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_KEPT = 4096
_LONG = 1 << 20  # bytes of a text; chat templates are shorter, a whole tokenizer.json may not be
_MOST = 64 << 20  # bytes that are read in all, so that a header cannot fill the memory


@dataclass(frozen=True, slots=True)
class Record:
    """A tensor as its record describes it; the shape is outermost first, as numpy's is."""

    kind: int
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """The metadata, the tensors, and the byte in the file from which their offsets count.

    Arrays of more than 4096 values, such as a vocabulary, and texts of more than 1 MiB are skipped:
    their value is None.
    """

    metadata: Mapping[str, Any]
    records: Mapping[str, Record]
    data: int


def parse_header(file: BinaryIO, /, *, size: int, name: str) -> Header:
    """Read the header of a GGUF file.

    Args:
        file: The file, at its beginning.
        size: Bytes of the whole file.
        name: The name to use in errors.

    Raises:
        FormatError: It is not GGUF, or says something that the file contradicts.
    """
    return _Reader(file, size, name).header()


class _Reader:
    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self._file, self._left, self._size, self._name = file, size, size, name
        self._taken = 0

    def header(self) -> Header:
        if (magic := self._take(4)) != b"GGUF":
            raise self._error(f"begins with {magic!r}", "b'GGUF'")
        version = self._number("I")
        if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
            raise self._error("a big-endian file", "what gguf-convert-endian makes of it")
        if version not in _VERSIONS:
            raise self._error(f"version {version}", f"one of {_VERSIONS}, little-endian")
        tensors, pairs = self._number("Q"), self._number("Q")
        metadata: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._text()
            if key in metadata:
                raise self._error(f"key {key!r:.200} stands twice", "each key once")
            metadata[key] = self._value(self._number("I"))
        records: dict[str, Record] = {}
        for _ in range(tensors):
            key = self._text()
            if key in records:
                raise self._error(f"tensor {key!r:.200} stands twice", "each tensor once")
            records[key] = self._record(key)
        unit = metadata.get("general.alignment", 32)
        if type(unit) is not int or unit < 1 or unit & (unit - 1):
            raise self._error(f"general.alignment is {unit!r:.80}", "a power of two")
        return Header(metadata, records, -(-self._position // unit) * unit)

    def _record(self, key: str) -> Record:
        axes = self._number("I")
        if axes > _MAX_AXES:
            raise self._error(f"{key!r:.200} has {axes} axes", f"at most {_MAX_AXES}")
        sizes = [self._number("Q") for _ in range(axes)]
        if math.prod(filter(None, sizes)) >= 2**60:
            raise self._error(f"{key!r:.200} has shape {sizes}", "fewer than 2^60 elements")
        kind, offset = self._number("I"), self._number("Q")
        return Record(kind, tuple(reversed(sizes)), offset)

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            length = self._number("Q")
            return self._decoded(length) if length <= _LONG else self._skip(length)
        if kind != _ARRAY:
            return self._number(self._code(kind))
        kind, count = self._number("I"), self._number("Q")
        if kind == _STRING:
            kept = [self._text() for _ in range(min(count, _KEPT))]
            for _ in range(count - len(kept)):
                self._skip(self._number("Q"))
            return kept if count <= _KEPT else None
        code = self._code(kind)
        width = struct.calcsize("<" + code)
        if count > _KEPT:
            return self._skip(count * width)
        content = self._take(count * width)
        return [_plain(code, value) for (value,) in struct.iter_unpack("<" + code, content)]

    def _code(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise self._error(f"value type {kind}", "a scalar, a string or an array of either")
        return _SCALARS[kind]

    def _text(self) -> str:
        return self._decoded(self._number("Q"))

    def _decoded(self, length: int) -> str:
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._error(f"text that is not UTF-8 ({error.reason})", "UTF-8") from error

    def _number(self, code: str) -> Any:
        (value,) = struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))
        return _plain(code, value)

    def _take(self, count: int) -> bytes:
        self._spend(count)
        self._taken += count
        if self._taken > _MOST:
            raise self._error("more of a header than fits", f"at most {_MOST:,} bytes to keep")
        content = self._file.read(count)
        if len(content) != count:
            raise self._error("ends early", "a file that does not change")
        return content

    def _skip(self, count: int) -> None:
        self._spend(count)
        self._file.seek(count, os.SEEK_CUR)

    def _spend(self, count: int) -> None:
        if count > self._left:
            raise self._error(f"asks for {count} bytes with {self._left} left", "a whole header")
        self._left -= count

    @property
    def _position(self) -> int:
        return self._size - self._left

    def _error(self, what: str, wanted: str) -> FormatError:
        return FormatError(f"{self._name}: byte {self._position}: {what}; wanted {wanted}")


def _plain(code: str, value: Any) -> Any:
    """Return a float32 as its shortest decimal: 1e-05, not 9.999999747378752e-06."""
    if code != "f" or not math.isfinite(value):
        return value
    np = require("numpy")
    return float(str(np.float32(value)))
