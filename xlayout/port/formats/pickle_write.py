"""A tree of `pickle_tree` written as a pickle from which Python's unpickler makes the objects."""

from __future__ import annotations

import struct
from collections.abc import Iterator
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
    try:
        return b"".join((b"\x80\x02", *_parts(value), b"."))
    except UnicodeEncodeError as error:
        raise FormatError(
            f"{error.object!r:.80}: {error.reason}; wanted a text that is one"
        ) from error


def _parts(value: Any) -> Iterator[bytes]:
    match value:
        case None:
            yield b"N"
        case bool():
            yield b"\x88" if value else b"\x89"
        case int():
            yield _integer(value)
        case Name():
            yield "c{}\n{}\n".format(*value.rsplit(".", 1)).encode()
        case str():
            raw = value.encode()
            yield b"X" + struct.pack("<I", len(raw)) + raw
        case tuple():
            yield from (b"(", *_all(value), b"t")
        case list():
            yield from (b"](", *_all(value), b"e")
        case dict():
            yield from (b"}(", *_all(part for pair in value.items() for part in pair), b"u")
        case Stored(key=key):
            yield from (*_parts(key), b"Q")
        case Made():
            yield from _parts(value.what)
            yield from _parts(value.args)
            yield b"\x81" if value.new else b"R"
            if value.state is not None:
                yield from (*_parts(value.state), b"b")
        case _:
            raise TypeError(f"{type(value).__name__}; wanted what a tree of a pickle is made of")


def _all(values: Any) -> Iterator[bytes]:
    for value in values:
        yield from _parts(value)


def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + struct.pack("<B", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + struct.pack("<B", len(raw)) + raw
