"""What a run has written so far, recorded beside its output, so that the next can continue.

There is one line per region, added once its bytes have been handed to the system: its tensor, its
bounds, its checksum. The first line is a key for what is being written; a journal with another
key belongs to something else, and an empty one only marks its folder as a run's. The lines are
claims, not proof: the run that continues reads each region back and checks its sum, because after a
power failure the disk may hold the line but not the bytes.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from xlayout.port.formats.base import Bounds
from xlayout.port.formats.system_errors import named

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["JOURNAL", "Journal", "checksum"]

JOURNAL = ".journal"


class Journal:
    """The journal in a folder: what it holds already, open for more.

    Args:
        folder: Where it is.
        key: Identifies what is being written.
    """

    def __init__(self, folder: Path, key: str, /) -> None:
        path = folder / JOURNAL
        lines = _lines(path)
        kept = lines[0] == [key]
        self._sums = dict(filter(None, map(_entry, lines[1:]))) if kept else {}
        mode = os.O_APPEND if kept else os.O_TRUNC
        self._handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | mode)
        # This ends a line that a killed run did not finish; such a line is never valid.
        os.write(self._handle, b"\n" if kept else _line([key]))

    @staticmethod
    def belongs(folder: Path, key: str, /) -> bool:
        """Whether the journal in a folder has this key."""
        return _lines(folder / JOURNAL)[0] == [key]

    def note(self, name: str, box: Bounds, crc: int, /) -> None:
        """Add a region that has been written, by its checksum."""
        os.write(self._handle, _line([name, box, crc]))

    def claim(self, name: str, box: Bounds, /) -> int | None:
        """Return the checksum of a region that an earlier run wrote; None if it did not."""
        return self._sums.get((name, box))

    def close(self) -> None:
        """Close the file, but keep it."""
        os.close(self._handle)


def checksum(array: Array, /) -> int:
    """Return the CRC-32 of an array's bytes in row-major order.

    >>> import numpy as np
    >>> checksum(np.zeros((2, 2), np.uint8)) == checksum(np.zeros(4, np.uint8))
    True
    """
    import numpy as np

    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _lines(path: Path) -> list[object]:
    """Return the values of the lines, None for broken ones."""
    with named(path):
        content = path.read_bytes()
    found: list[object] = []
    for line in content.split(b"\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append(None)
    return found


def _entry(value: object) -> tuple[tuple[str, Bounds], int] | None:
    match value:
        case [str(name), list(box), int(crc)]:
            return (name, tuple(map(_pair, box))), crc
    return None


def _pair(value: object) -> tuple[int, int]:
    match value:
        case [int(start), int(stop)]:
            return start, stop
    return -1, -1  # no region of any tensor
