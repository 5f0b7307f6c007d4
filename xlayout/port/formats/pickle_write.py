"""A tree of `pickle_tree` written as a pickle from which Python's unpickler makes the objects."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import chain
from typing import Any

from xlayout.errors import FormatError
from xlayout.port.formats.pickle_tree import Made, Name, Stored

__all__ = ["write_pickle"]


def write_pickle(value: Any, /) -> bytes:
    """Return a pickle of protocol 2, which torch's weights-only reader accepts.

    Args:
        value: None, bools, integers, texts, tuples, lists, dicts, `Name`, `Made` and `Stored`.

    Raises:
        FormatError: A text has a surrogate, which cannot be encoded.

    >>> import pickle
    >>> pickle.loads(write_pickle(Made(Name("builtins.complex"), (1, 2))))
    (1+2j)
    """
    writer = _Writer()
    try:
        writer.write(value)
    except UnicodeEncodeError as error:
        raise FormatError(
            f"{error.object!r:.80}: {error.reason}; wanted a text that is one"
        ) from error
    return bytes(writer.out + b".")


class _Writer:
    """The pickle so far, and the number of each name and text in it, to which later ones refer."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self._numbers: dict[tuple[type, str], int] = {}

    def write(self, value: Any) -> None:
        out = self.out
        match value:
            case None:
                out += b"N"
            case bool():
                out += b"\x88" if value else b"\x89"
            case int():
                out += _integer(value)
            case Name() | str():
                self._write_once(value)
            case tuple():
                self._write_all(value, b"(", b"t")
            case list():
                self._write_all(value, b"](", b"e")
            case dict():
                self._write_all(chain.from_iterable(value.items()), b"}(", b"u")
            case Stored(key=key):
                self.write(key)
                out += b"Q"
            case Made():
                self.write(value.what)
                self.write(value.args)
                out += b"\x81" if value.new else b"R"
                if value.state is not None:
                    self.write(value.state)
                    out += b"b"
            case _:
                kind = type(value).__name__
                raise TypeError(f"{kind}; wanted what a tree of a pickle is made of")

    def _write_once(self, value: str) -> None:
        known = self._numbers.get((type(value), value))
        if known is not None:
            self.out += _numbered(b"h", b"j", known)
            return
        if isinstance(value, Name):
            self.out += "c{}\n{}\n".format(*value.rsplit(".", 1)).encode()
        else:
            raw = value.encode()
            self.out += b"X" + struct.pack("<I", len(raw)) + raw
        number = self._numbers[type(value), value] = len(self._numbers)
        self.out += _numbered(b"q", b"r", number)

    def _write_all(self, values: Iterable[Any], begin: bytes, end: bytes) -> None:
        self.out += begin
        for value in values:
            self.write(value)
        self.out += end


def _numbered(short: bytes, long: bytes, number: int) -> bytes:
    """Return the instruction that stores or gets what has a number."""
    return short + bytes([number]) if number < 256 else long + struct.pack("<I", number)


def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + struct.pack("<B", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + struct.pack("<B", len(raw)) + raw
