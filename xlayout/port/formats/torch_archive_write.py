"""The zip archive of one tensor, laid out before its bytes are known, for `torch.load` to read.

Every number is written in 64 bits, so that archives of small tensors are made just like those of
large ones. The checksum of the tensor's record stays zero, as all checksums in torch do after
`set_crc32_options(False)`: torch's reader ignores them, and a correct one would cost a second read.
"""

from __future__ import annotations

import struct
import zlib

from xlayout.port.formats.base import TensorSpec
from xlayout.port.formats.torch_archive import CENTRAL, END, END64, LOCAL, LOCATOR, WIDE
from xlayout.port.formats.torch_tensor import STORAGE, render_tensor

__all__ = ["ALIGNMENT", "render_archive", "render_object"]

ALIGNMENT = 64
"""What torch aligns a tensor's bytes to, which is also a cache line."""

_NEEDED = 45  # the version of zip with 64-bit numbers
_FILLER = b"FB"  # the kind of extra field with which torch aligns
_FOLDER = "archive/"
_RECORDS = {"byteorder": b"little", "version": b"3\n"}


def render_archive(spec: TensorSpec, /) -> tuple[bytes, bytes]:
    r"""Return what precedes a tensor's bytes and what follows them in its archive.

    The bytes are aligned if the archive is.

    >>> front, back = render_archive(TensorSpec("int8", (5,)))
    >>> len(front) % 64, front[:4], back[-22:-18]
    (0, b'PK\x03\x04', b'PK\x05\x06')
    """
    front, directory = _front(render_tensor(spec))
    bare, _ = _headers(f"data/{STORAGE}", spec.nbytes, 0, len(front), fill=4)
    fill = 4 + -(len(front) + len(bare)) % ALIGNMENT
    local, central = _headers(f"data/{STORAGE}", spec.nbytes, 0, len(front), fill=fill)
    front, directory = front + local, directory + central
    return front, _back(directory, len(front) + spec.nbytes, len(_RECORDS) + 2)


def render_object(pickle: bytes, /) -> bytes:
    r"""Return the archive of an object without tensors, given its pickle.

    >>> render_object(b"\x80\x02}.")[:4]
    b'PK\x03\x04'
    """
    front, directory = _front(pickle)
    return front + _back(directory, len(front), len(_RECORDS) + 1)


def _front(pickle: bytes) -> tuple[bytes, bytes]:
    """Return the records that describe an archive, and their part of its directory."""
    front, directory = b"", b""
    for name, content in {"data.pkl": pickle, **_RECORDS}.items():
        local, central = _headers(name, len(content), zlib.crc32(content), len(front), fill=0)
        front, directory = front + local + content, directory + central
    return front, directory


def _back(directory: bytes, begin: int, count: int) -> bytes:
    """Return the directory, which begins at a given byte, and the end of the archive."""
    end = END64.pack(b"PK\6\6", 44, _NEEDED, _NEEDED, 0, 0, count, count, len(directory), begin)
    locator = LOCATOR.pack(b"PK\6\7", 0, begin + len(directory), 1)
    last = END.pack(b"PK\5\6", 0, 0, count, count, len(directory), min(begin, WIDE), 0)
    return directory + end + locator + last


def _headers(name: str, size: int, crc: int, offset: int, *, fill: int) -> tuple[bytes, bytes]:
    """Return a record's own header, with a filler of so many bytes, and its directory entry."""
    raw = (_FOLDER + name).encode()
    wide = struct.pack("<2H2Q", 1, 16, size, size)
    filler = struct.pack("<2sH", _FILLER, fill - 4) + b"Z" * (fill - 4) if fill else b""
    common = (_NEEDED, 0, 0, 0, 0, crc, WIDE, WIDE, len(raw))
    local = LOCAL.pack(b"PK\3\4", *common, len(wide + filler))
    rest = (len(wide), 0, 0, 0, 0, offset)
    central = CENTRAL.pack(b"PK\1\2", _NEEDED, *common, *rest)
    return local + raw + wide + filler, central + raw + wide
