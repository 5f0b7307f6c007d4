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
    out = bytearray(b"\x80\x02")
    try:
        _write(value, out)
    except UnicodeEncodeError as error:
        raise FormatError(
            f"{error.object!r:.80}: {error.reason}; wanted a text that is one"
        ) from error
    return bytes(out + b".")


def _write(value: Any, out: bytearray) -> None:
    match value:
        case None:
            out += b"N"
        case bool():
            out += b"\x88" if value else b"\x89"
        case int():
            out += _integer(value)
        case Name():
            out += "c{}\n{}\n".format(*value.rsplit(".", 1)).encode()
        case str():
            raw = value.encode()
            out += b"X" + struct.pack("<I", len(raw)) + raw
        case tuple():
            _write_all(value, out, b"(", b"t")
        case list():
            _write_all(value, out, b"](", b"e")
        case dict():
            _write_all(chain.from_iterable(value.items()), out, b"}(", b"u")
        case Stored(key=key):
            _write(key, out)
            out += b"Q"
        case Made():
            _write(value.what, out)
            _write(value.args, out)
            out += b"\x81" if value.new else b"R"
            if value.state is not None:
                _write(value.state, out)
                out += b"b"
        case _:
            raise TypeError(f"{type(value).__name__}; wanted what a tree of a pickle is made of")


def _write_all(values: Iterable[Any], out: bytearray, begin: bytes, end: bytes) -> None:
    out += begin
    for value in values:
        _write(value, out)
    out += end


def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + struct.pack("<B", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + struct.pack("<B", len(raw)) + raw
