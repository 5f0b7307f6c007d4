"""The files of a checkpoint, opened as they are needed, and only a few of them at a time."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from xlayout.port.formats.system_errors import TOO_MANY, closed

__all__ = ["OpenFiles"]

_MOST = 64  # files at a time; a checkpoint may have more than a process may open
_SHARE = 8  # the part of the process's limit that they take: an eighth
_CHANGED = "changed since it was first opened; wanted a checkpoint that stays as it is"


class OpenFiles:
    """Files that are opened as they are needed, from any thread.

    One that is only read has to be what it was when it was first opened.

    Args:
        flags: How to open them: `os.O_RDONLY` or others.
    """

    def __init__(self, flags: int, /) -> None:
        self._flags = flags
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = min(_MOST, soft // _SHARE)
        self._handles: dict[Path, int] = {}
        self._users: dict[Path, int] = {}
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._lock, self._closed = Lock(), False

    @contextmanager
    def opened(self, file: Path, /) -> Iterator[int]:
        """Yield an open handle of a file, which stays open until the context ends.

        Raises:
            OSError: The file cannot be opened, it has changed meanwhile, or all were closed.
        """
        with self._lock:
            if self._closed:
                raise closed(file)
            if file not in self._handles:
                self._handles[file] = self._unchanged(file, self._open(file))
            self._users[file] = self._users.get(file, 0) + 1
            handle = self._handles[file]
        try:
            yield handle
        finally:
            with self._lock:
                self._users[file] -= 1

    def close(self) -> None:
        """Close the files; none can be opened afterwards."""
        self._closed = True
        while self._handles:
            os.close(self._handles.popitem()[1])

    def _open(self, file: Path) -> int:
        """Open a file, with fewer others if there are too many."""
        while len(self._handles) >= self._most and self._close_idle():
            pass
        while True:
            try:
                return os.open(file, self._flags)
            except OSError as error:
                if error.errno not in TOO_MANY or not self._close_idle():
                    raise

    def _unchanged(self, file: Path, handle: int) -> int:
        """Return the handle of a file; if it is only read and has changed, close it and say so."""
        stat = os.fstat(handle)
        stamp = stat.st_size, stat.st_mtime_ns
        if self._flags != os.O_RDONLY or self._stamps.setdefault(file, stamp) == stamp:
            return handle
        os.close(handle)
        raise OSError(errno.ESTALE, _CHANGED, str(file))

    def _close_idle(self) -> bool:
        """Close the file that was opened first of those not in use; return whether there is one."""
        idle = next((file for file in self._handles if not self._users.get(file)), None)
        if idle is not None:
            os.close(self._handles.pop(idle))
        return idle is not None
