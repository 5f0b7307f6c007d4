"""Publishing atomically: an output grows in a hidden folder beside its place, then appears whole.

The folder is on the same filesystem, so one rename publishes it after everything in it has
reached the disk. Whatever goes wrong before that, nothing that existed is touched. A process that
is killed leaves its folder behind; the lock on it dies with the process, and the next run to the
same place goes on in it, if it writes the same (`Journal`), or removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from xlayout.errors import PortError
from xlayout.port.formats.journal import JOURNAL, Journal

__all__ = ["Staging"]

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Staging:
    """The hidden folder in which one output grows.

    Args:
        path: Where the output will appear: absent, or an empty directory.
        needed: Bytes that will be written, checked against the free space before anything is.
        single: Whether the output is the one file in the folder, and not the folder itself.
        key: What will be written; a folder that a dead run left with the same key is taken over.

    Attributes:
        folder: The hidden folder.
        resumed: Whether it is that of a run that was interrupted.

    Raises:
        PortError: The place is taken, or the disk is too small.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        needed: int,
        single: bool = False,
        key: str | None = None,
    ) -> None:
        self.path = Path(os.path.realpath(path))  # unlike resolve(), it bears a loop
        self.needed = needed
        self._single = single
        self._refuse_taken()
        found = _take_over(self.path, key)
        free = _free(self.path.parent) + (_size(found[0]) if found else 0)
        if needed > free:
            if found:
                os.close(found[1])
            raise PortError(f"{self.path}: {_room(needed, free)}")
        self.resumed = found is not None
        try:
            self._parents = _make_parents(self.path.parent)
            self.folder, self._lock = found or _locked_folder(self.path)
            self._take_mode(stat.S_IRWXU)
        except OSError as error:
            where = error.filename or self.path.parent
            raise PortError(
                f"{self.path}: {where}: {error.strerror}; wanted a place in a folder that can be "
                "written to"
            ) from error

    @property
    def content(self) -> Path:
        """What will appear at `path`: the folder, or the one file in it."""
        if not self._single:
            return self.folder
        (file,) = (file for file in self.folder.iterdir() if file.name != JOURNAL)
        return file

    def publish(self) -> None:
        """Flush everything to disk and let it appear at `path` in one step.

        Raises:
            PortError: Something appeared there meanwhile; it is left as it is.
        """
        files = [Path(root) / name for root, _, names in os.walk(self.folder) for name in names]
        files = [file for file in files if file.name != JOURNAL]
        with self.watch():
            for file in files:
                _sync(file)
            (self.folder / JOURNAL).unlink(missing_ok=True)
            for root, _, _ in os.walk(self.folder, topdown=False):
                _sync(Path(root))
        self._refuse_taken()
        try:
            if self._single:
                os.link(self.content, self.path)
                shutil.rmtree(self.folder)
            else:
                self._take_mode()
                self.folder.rename(self.path)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                raise self._taken() from error
            raise
        _sync(self.path.parent)
        self._parents = []
        os.close(self._lock)

    def clear(self, keep: Collection[str] = ()) -> None:
        """Remove what is in the folder, but for these names."""
        for child in list(self.folder.iterdir()):
            if child.name in keep:
                continue
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()

    def leave(self) -> None:
        """Let go of the folder and keep it, for a run that goes on."""
        os.close(self._lock)

    def discard(self) -> None:
        """Remove the folder, and the parents that were made for it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        for parent in self._parents:
            if any(parent.iterdir()):
                break
            parent.rmdir()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Turn a full disk into an error that says how much was needed and how much is free."""
        try:
            yield
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            raise self.full() from error

    def full(self) -> PortError:
        """Return the error for a disk that filled up while we were writing."""
        return PortError(f"{self.path}: {_room(self.needed, _free(self.path.parent))}")

    def _take_mode(self, more: int = 0) -> None:
        """Let the folder be as private as the empty directory whose place it takes, if any."""
        if not self._single and self.path.is_dir():
            self.folder.chmod(stat.S_IMODE(self.path.stat().st_mode) | more)

    def _refuse_taken(self) -> None:
        if self._single or not self.path.is_dir():
            if os.path.lexists(self.path):
                raise self._taken()
        elif any(self.path.iterdir()):
            raise self._taken()
        elif os.path.ismount(self.path):
            raise PortError(f"{self.path}: a mount point; name a directory inside it")

    def _taken(self) -> PortError:
        wanted = "a path that is absent" if self._single else "an absent or empty directory"
        return PortError(f"{self.path}: already holds something; wanted {wanted}")


def _room(needed: int, free: int) -> str:
    return f"the disk is full: {needed:,} bytes are needed in all, {free:,} are free"


def _free(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _make_parents(folder: Path) -> list[Path]:
    """Create the missing parents and return them, innermost first."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _locked_folder(path: Path) -> tuple[Path, int]:
    while True:
        folder = path.parent / f".{path.name}.{secrets.token_hex(4)}.partial"
        folder.mkdir()
        # Until it is locked, another run may take it for an orphan and remove it.
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        _try_lock(lock)
        if folder.exists():
            return folder, lock
        os.close(lock)


def _try_lock(handle: int) -> bool:
    """Lock without waiting; a filesystem that has no locks counts as locked by someone else."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _take_over(path: Path, key: str | None) -> tuple[Path, int] | None:
    """Return a folder with this key that a dead run of ours left, locked; remove the others."""
    found = None
    ours = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{8}\.partial")
    for folder in path.parent.iterdir() if path.parent.is_dir() else ():
        if not ours.fullmatch(folder.name):
            continue
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # not a folder, or none of ours
            continue
        mine = os.fstat(lock).st_uid == os.geteuid() and _try_lock(lock)
        if mine and found is None and key is not None and Journal.belongs(folder, key):
            found = folder, lock
            continue
        if mine:
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
    return found


def _size(folder: Path) -> int:
    """Return the bytes that the files of a folder take on the disk."""
    paths = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
    return sum(path.lstat().st_blocks * 512 for path in paths)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
