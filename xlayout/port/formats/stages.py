"""The hidden folders in which outputs grow: made, found again beside their place, and removed.

A run locks its folder while it lives, so one that can be locked is a dead run's. A file in it, the
journal, marks it as ours: a folder that merely has such a name is let be.
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
"""Bytes of an output's name, so that its folder's is no longer than a name may be."""


@dataclass(slots=True)
class Stage:
    """A hidden folder that is locked by us.

    Args:
        folder: Where it lies.
        lock: An open handle on it, which holds the lock; -1 once it is released.
    """

    folder: Path
    lock: int

    @property
    def size(self) -> int:
        """Bytes that its files take on the disk."""
        walk = os.walk(self.folder)
        paths = (Path(root) / name for root, _, names in walk for name in names)
        return sum(path.lstat().st_blocks * 512 for path in paths)

    @property
    def is_bare(self) -> bool:
        """Whether there is nothing in the folder but its mark, and so nothing to go on with."""
        return all(file.name == JOURNAL for file in self.folder.iterdir())

    def became(self, path: Path, /) -> bool:
        """Whether what lies at `path` is this folder, or a file in it."""
        if self.lock < 0 or not os.path.lexists(path):
            return False
        files = self.folder.iterdir() if self.folder.is_dir() else ()
        own = (os.fstat(self.lock), *(file.lstat() for file in files))
        return any(os.path.samestat(path.lstat(), one) for one in own)

    def release(self) -> None:
        """Let go of the folder and leave it; once is enough, and more does no harm."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def clear(self, keep: Collection[str] = ()) -> None:
        """Remove what is in the folder, but for these names and the journal, which marks it."""
        for child in list(self.folder.iterdir()):
            if child.name == JOURNAL or child.name in keep:
                continue
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        with suppress(OSError):
            self.clear()  # the mark goes last: who is killed on the way leaves what is still ours
        shutil.rmtree(self.folder, ignore_errors=True)
        self.release()


def new_stage(path: Path, /) -> Stage:
    """Make a hidden folder for what will appear at `path`, with an empty journal as its mark.

    Raises:
        OSError: The folder around it cannot be written to.
    """
    while True:
        folder = path.parent / f".{path.name}.{secrets.token_hex(_RANDOM // 2)}.partial"
        folder.mkdir()
        # Until it is locked, another run may take it for an orphan, lock it and remove it.
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
    """Return the folders that dead runs to `path` left, each locked."""
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
    """Lock a file, by default without waiting for whoever has it; whether it is locked now.

    A filesystem that has no locks counts as locked by someone else.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _marked(folder: Path) -> bool:
    """Whether a folder holds a journal's file, or nothing: its run died before it made one.

    It may be gone: another run was done with it just before it was locked.
    """
    journal = folder / JOURNAL
    if not folder.is_dir():
        return False
    return (journal.is_file() and not journal.is_symlink()) or not any(folder.iterdir())
