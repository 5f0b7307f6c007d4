"""The hidden folders in which outputs grow: made, found again beside their place, and removed.

A run locks its folder while it is alive, so a folder that can be locked is a dead run's. A file in
it, the journal, marks it as ours: a folder that merely has such a name is left alone.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from xlayout.port.formats.journal import JOURNAL

__all__ = ["LONGEST", "Stage", "dead_stages", "new_stage", "try_lock"]

_RANDOM = 8  # hexadecimal digits in a folder's name
LONGEST = 255 - len(f"..{'0' * _RANDOM}.partial")
"""The most bytes of an output's name, so that the name of its folder is not too long."""


@dataclass(slots=True)
class Stage:
    """A hidden folder that we have locked.

    Args:
        folder: Where it is.
        lock: An open handle of it, which holds the lock; -1 once it is released.
    """

    folder: Path
    lock: int

    @property
    def size(self) -> int:
        """Bytes that its files take on disk."""
        walk = os.walk(self.folder)
        paths = (Path(root) / name for root, _, names in walk for name in names)
        return sum(path.lstat().st_blocks * 512 for path in paths)

    @property
    def is_bare(self) -> bool:
        """Whether the folder holds only its mark, and so nothing to continue from."""
        return all(file.name == JOURNAL for file in self.folder.iterdir())

    def became(self, path: Path, /) -> bool:
        """Whether what lies at `path` is this folder, or a file in it."""
        if self.lock < 0 or not os.path.lexists(path):
            return False
        files = self.folder.iterdir() if self.folder.is_dir() else ()
        own = (os.fstat(self.lock), *(file.lstat() for file in files))
        return any(os.path.samestat(path.lstat(), one) for one in own)

    def release(self) -> None:
        """Unlock the folder and leave it; doing so again is harmless."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def clear(self, keep: Collection[str] = ()) -> None:
        """Remove what is in the folder, except these names and the journal, which marks it."""
        for child in list(self.folder.iterdir()):
            if child.name == JOURNAL or child.name in keep:
                continue
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        with suppress(OSError):
            self.clear()  # the mark goes last: after a kill the folder is still known as ours
        shutil.rmtree(self.folder, ignore_errors=True)
        self.release()


def new_stage(path: Path, /) -> Stage:
    """Make a hidden folder for what will appear at `path`, with an empty journal as its mark.

    Raises:
        OSError: Its parent folder cannot be written to.
    """
    while True:
        folder = path.parent / f".{path.name}.{secrets.token_hex(_RANDOM // 2)}.partial"
        folder.mkdir()
        # Until we lock it, another run may take it for an orphan, lock it and remove it.
        try:
            stage = Stage(folder, os.open(folder, os.O_RDONLY))
        except FileNotFoundError:
            continue
        try_lock(stage.lock, wait=True)
        if not folder.exists():
            stage.release()
            continue
        try:
            (folder / JOURNAL).touch()
        except BaseException:
            stage.remove()
            raise
        return stage


def dead_stages(path: Path, /) -> list[Stage]:
    """Return the folders left by dead runs to `path`, each locked."""
    found = []
    named = re.compile(re.escape(f".{path.name}.") + rf"[0-9a-f]{{{_RANDOM}}}\.partial")
    for folder in path.parent.iterdir() if path.parent.is_dir() else ():
        if not named.fullmatch(folder.name):
            continue
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # not a folder, or none of ours
            continue
        stage = Stage(folder, lock)
        if os.fstat(lock).st_uid == os.geteuid() and try_lock(lock) and _marked(folder):
            found.append(stage)
        else:
            stage.release()
    return found


def try_lock(handle: int, /, *, wait: bool = False) -> bool:
    """Lock a file, by default without waiting; return whether we hold the lock.

    A filesystem without locks counts as locked by someone else.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _marked(folder: Path) -> bool:
    """Whether a folder has a journal, or is empty because its run died before it made one.

    It may be gone, if another run finished with it just before it was locked.
    """
    journal = folder / JOURNAL
    if not folder.is_dir():
        return False
    return (journal.is_file() and not journal.is_symlink()) or not any(folder.iterdir())
