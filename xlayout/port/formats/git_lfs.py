"""Pointers of Git LFS: small texts that lie where a clone has not fetched the files themselves."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from xlayout.errors import FormatError

__all__ = ["refuse_pointer"]

_BEGINS = b"version https://git-lfs"
_MOST = 1024  # bytes; Git LFS itself takes no longer file for a pointer


def refuse_pointer(file: Path, /) -> None:
    """Refuse a pointer, which any reader would take for a broken file.

    Raises:
        FormatError: The file is one.
    """
    head = b""
    with suppress(OSError):  # whoever reads the file will say what is wrong
        if file.stat().st_size < _MOST:
            with file.open("rb") as opened:
                head = opened.read(len(_BEGINS))
    if head == _BEGINS:
        raise FormatError(
            f"{file}: a pointer of Git LFS; wanted the file that `git lfs pull` puts in its place"
        )
