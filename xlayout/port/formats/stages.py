"""The hidden folders in which outputs grow: made, found again beside their place, and removed.

A file in each, the journal, marks it as ours: a folder that merely has such a name is left alone.
Beside it is what will appear, so that an output appears without a journal, whenever its run dies.
A run locks its journal while it is alive, so one that can be locked is a dead run's. (NFS locks
only what is open for writing, and so no folder.)
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from xlayout.port.formats.journal import JOURNAL

__all__ = ["LONGEST", "Stage", "dead_stages", "new_stage", "stages_beside", "try_lock"]

_RANDOM = 8  # hexadecimal digits in a folder's name
_OUTPUT = "output"
LONGEST = 255 - len(f"..{'0' * _RANDOM}.partial")
"""The most bytes of an output's name, so that the name of its folder is not too long."""


@dataclass(slots=True)
class Stage:
    """A hidden folder that we have locked.

    Args:
        folder: Where it is.
        lock: An open handle of its journal, which holds the lock; -1 once it is released.
    """

    folder: Path
    lock: int

    @property
    def output(self) -> Path:
        """The folder in it in which the output grows; it is gone once it has appeared."""
        return self.folder / _OUTPUT

    @property
    def size(self) -> int:
        """Bytes that its files take on disk."""
        walk = os.walk(self.folder)
        paths = (Path(root) / name for root, _, names in walk for name in names)
        return sum(path.lstat().st_blocks * 512 for path in paths)

    @property
    def is_bare(self) -> bool:
        """Whether the folder holds only its mark, and so nothing to continue from."""
        files = (name for _, _, names in os.walk(self.folder) for name in names)
        return all(name == JOURNAL for name in files)

    def became(self, path: Path, /) -> bool:
        """Whether the file at `path` is one of this folder, under a second name."""
        if not (os.path.lexists(path) and self.output.is_dir()):
            return False
        return any(os.path.samestat(path.lstat(), f.lstat()) for f in self.output.iterdir())

    def release(self) -> None:
        """Unlock the folder and leave it; doing so again is harmless."""
        lock, self.lock = self.lock, -1  # first, so that an interrupt closes nothing twice
        if lock >= 0:
            os.close(lock)

    def clear(self, keep: Collection[str] = ()) -> None:
        """Remove what has grown in the folder, except these names."""
        _clear(self.output, keep)

    def remove(self) -> None:
        """Remove the folder and all in it; if something cannot be, it stays known as ours."""
        with suppress(OSError):
            _clear(self.folder, (JOURNAL,))
            (self.folder / JOURNAL).unlink()  # last: without it nobody would remove the rest
        self.release()  # before the folder: on NFS a file that is open stays in it
        with suppress(OSError):
            self.folder.rmdir()


def new_stage(path: Path, /) -> Stage:
    """Make a hidden folder for what will appear at `path`, with an empty journal as its mark.

    Raises:
        OSError: Its parent folder cannot be written to.
    """
    while True:
        folder = path.parent / f".{path.name}.{secrets.token_hex(_RANDOM // 2)}.partial"
        folder.mkdir()
        # Until we lock it, another run may take it for a dead run's, and remove it.
        try:
            stage = _opened(folder, os.O_CREAT)
        except FileNotFoundError:
            continue
        except BaseException:
            with suppress(OSError):
                folder.rmdir()
            raise
        with ExitStack() as undo:
            undo.callback(stage.remove)
            try_lock(stage.lock, wait=True)
            if (folder / JOURNAL).exists():
                stage.output.mkdir()
                undo.pop_all()
                return stage


def stages_beside(path: Path, /) -> Iterator[Path]:
    """Yield the folders that are named like hidden ones of runs to `path`, dead or alive."""
    named = re.compile(re.escape(f".{path.name}.") + rf"[0-9a-f]{{{_RANDOM}}}\.partial")
    for folder in path.parent.iterdir() if path.parent.is_dir() else ():
        if named.fullmatch(folder.name):
            yield folder


def dead_stages(path: Path, /) -> list[Stage]:
    """Return the folders left by dead runs to `path`, each locked."""
    found = []
    with ExitStack() as undo:
        for folder in stages_beside(path):
            try:
                if folder.lstat().st_uid != os.geteuid():
                    continue
                stage = _opened(folder)
            except OSError:
                with suppress(OSError):
                    folder.rmdir()  # empty: its run died before it made a journal
                continue
            undo.callback(stage.release)
            # Another run may have finished with it just before it was locked.
            marked = stat.S_ISREG(os.fstat(stage.lock).st_mode)
            if marked and try_lock(stage.lock) and (folder / JOURNAL).exists():
                found.append(stage)
            else:
                stage.release()
        undo.pop_all()
    return found


def _clear(folder: Path, keep: Collection[str]) -> None:
    for child in list(folder.iterdir()):
        if child.name in keep:
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()


def _opened(folder: Path, flags: int = 0) -> Stage:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        how = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | flags
        return Stage(folder, os.open(JOURNAL, how, 0o666, dir_fd=handle))
    finally:
        os.close(handle)


def try_lock(handle: int, /, *, wait: bool = False) -> bool:
    """Lock a file, by default without waiting; return whether we hold the lock.

    A filesystem without locks counts as locked by someone else.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
