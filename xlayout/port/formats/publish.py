"""Publishing atomically: an output grows in a hidden folder beside its place, then appears whole.

The folder is on the same filesystem, so one rename publishes what has grown in it once all of it
has reached the disk. Whatever goes wrong before that, nothing that existed is touched. A killed
process leaves its folder behind, but its lock is released; the next run to the same place continues
in the folder if it writes the same (`Journal`), and removes it otherwise.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from xlayout.errors import PortError
from xlayout.port.formats.journal import Journal
from xlayout.port.formats.stages import LONGEST, Stage, dead_stages, new_stage
from xlayout.port.formats.system_errors import TOO_MANY, named

__all__ = ["Staging", "nearest_folder", "refuse_taken"]

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
_NO_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS)
_TOO_LARGE = (
    "a file may not grow that large here; wanted a filesystem that lets it, and no lower limit "
    "(ulimit -f)"
)


class Staging:
    """The hidden folder in which one output grows, beside the journal of what is written.

    Args:
        path: Where the output will appear: absent, or an empty directory.
        needed: Bytes that will be written, checked against the free space beforehand.
        single: Whether the output is the one file in `folder`, rather than `folder` itself.
        key: Identifies what will be written; a dead run's folder with the same key is taken over.

    Attributes:
        hidden: The hidden folder; the journal is in it.
        folder: The folder in it, for the files of the output.
        resumed: Whether they are those of an interrupted run.

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
        self.path = Path(os.path.realpath(path))  # unlike resolve(), it tolerates a loop
        self.needed = needed
        self._single = single
        self._appears: os.stat_result | None = None
        self._parents: list[Path] = []
        with ExitStack() as undo:  # so that an interrupt leaves neither a folder nor a lock
            dead = dead_stages(self.path)
            for stage in dead:
                undo.callback(stage.release)
            self._refuse_taken_or_clear(dead)
            free = _free(self.path) + sum(stage.size for stage in dead)
            if needed > free:
                raise PortError(f"{self.path}: {_room(needed, free)}")
            ours = (s for s in dead if key is not None and Journal.belongs(s.folder, key))
            found = next((s for s in ours if s.output.is_dir() and not s.output.is_symlink()), None)
            self.resumed = found is not None
            undo.callback(self._remove_parents)
            self._settle(found)
            if not found:
                undo.callback(self._stage.remove)
            # Remove other plans' work only now that nothing can stop this one.
            for stage in dead:
                if stage is not found:
                    stage.remove()
            undo.pop_all()

    def _settle(self, found: Stage | None) -> None:
        """Take over the stage of a dead run, or make a new one, with the parents it needs."""
        try:
            self._parents += (parent for parent in self.path.parents if not parent.exists())
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._stage = found or new_stage(self.path)
            self.hidden, self.folder = self._stage.folder, self._stage.output
            self._take_mode(self.hidden)
        except OSError as error:
            if error.errno in TOO_MANY:
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            where = error.filename or self.path.parent
            raise PortError(
                f"{self.path}: {where}: {error.strerror}; wanted a place in a folder that can be "
                "written to"
            ) from error

    @property
    def content(self) -> Path:
        """What will appear at `path`: the folder, or the only file in it."""
        if not self._single:
            return self.folder
        (file,) = self.folder.iterdir()
        return file

    @property
    def published(self) -> bool:
        """Whether the output has appeared at `path`."""
        if self._appears is None or not os.path.lexists(self.path):
            return False
        return os.path.samestat(self.path.lstat(), self._appears)

    def publish(self) -> None:
        """Flush everything to disk and make it appear at `path` in one step.

        Raises:
            PortError: Something has appeared there meanwhile; it is left as it is.
        """
        with self.watch():
            for root, _, names in os.walk(self.folder, topdown=False):
                for path in (*names, ""):  # the folder itself comes last
                    _sync(Path(root, path))
        refuse_taken(self.path, single=self._single)
        self._appears = self.content.lstat()
        try:
            if self._single:
                _let_appear(self.content, self.path)
            else:
                self._rename()
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                raise _taken(self.path, single=self._single) from error
            raise
        for folder in (self.path.parent, *(made.parent for made in self._parents)):
            _sync(folder)
        self.discard()
        for stage in dead_stages(self.path):  # of runs to the same place that were killed meanwhile
            stage.remove()

    def _rename(self) -> None:
        self._take_mode(self.folder)
        mode = stat.S_IMODE(self.path.stat().st_mode) if self.path.is_dir() else None
        self.folder.rename(self.path)
        if mode is not None:
            self.path.chmod(mode)

    def clear(self, keep: Collection[str] = ()) -> None:
        """Remove the files of the output, except these names."""
        self._stage.clear(keep)

    def leave(self) -> None:
        """Release the folder but keep it, for a run that continues."""
        self._stage.release()

    def discard(self) -> None:
        """Remove the hidden folder, and the parents that were made, as far as they are empty."""
        self._stage.remove()
        self._remove_parents()

    def _remove_parents(self) -> None:
        """Remove the parents that were made, innermost first, as far as they are empty."""
        for parent in self._parents:
            with suppress(OSError):
                parent.rmdir()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Turn system errors into errors that say what is wrong, and where.

        Raises:
            PortError: The disk is full; it says how much was needed and how much is free.
            OSError: Any other error, with a path.
        """
        try:
            with named(self.path):
                yield
        except OSError as error:
            if error.errno in _NO_SPACE:
                full = _room(self.needed, _free(self.path))
                raise PortError(f"{self.path}: {full}") from error
            if error.errno == errno.EFBIG:
                raise OSError(errno.EFBIG, _TOO_LARGE, str(self.path)) from error
            raise

    def _take_mode(self, folder: Path) -> None:
        """Make a folder as private as the empty directory that will be replaced, if any."""
        if self.path.is_dir():
            folder.chmod(stat.S_IMODE(self.path.stat().st_mode) | stat.S_IRWXU)

    def _refuse_taken_or_clear(self, dead: Sequence[Stage]) -> None:
        try:
            refuse_taken(self.path, single=self._single)
        except PortError:
            # Clean up after a run that was killed just before it would have removed its folder.
            for stage in dead:
                if stage.became(self.path) or stage.is_bare:
                    stage.remove()
            raise


def refuse_taken(path: Path, /, *, single: bool) -> None:
    """Refuse a place at which nothing can appear.

    Args:
        path: The place, links followed.
        single: Whether a file will appear, rather than a folder.

    Raises:
        PortError: It holds something, is a mount point or the current directory, or its name is too
            long.
    """
    if (length := len(os.fsencode(path.name))) > LONGEST:
        raise PortError(
            f"{path}: a name of {length} bytes; wanted at most {LONGEST}, as the hidden folder in "
            "which it grows has a longer one"
        )
    if single or not path.is_dir():
        if os.path.lexists(path):
            raise _taken(path, single=single)
    elif any(path.iterdir()):
        raise _taken(path, single=single)
    elif os.path.ismount(path):
        raise PortError(f"{path}: a mount point; name a directory inside it")
    elif path.samefile(os.curdir):  # whoever works in it would see it empty, as it is replaced
        raise PortError(f"{path}: the current directory; name a directory inside it")


def _taken(path: Path, /, *, single: bool) -> PortError:
    wanted = "a path that is absent" if single else "an absent or empty directory"
    return PortError(f"{path}: already holds something; wanted {wanted}")


def _room(needed: int, free: int) -> str:
    beyond = "; a quota is used up, or the number of files it can hold" if free >= needed else ""
    return f"the disk is full: {needed:,} bytes are needed in all, {free:,} are free{beyond}"


def nearest_folder(path: Path, /) -> Path:
    """Return what exists nearest above a path, which is where its folders would be made."""
    return next(parent for parent in path.parents if parent.exists())


def _free(path: Path) -> int:
    return shutil.disk_usage(nearest_folder(path)).free


def _let_appear(file: Path, path: Path) -> None:
    """Give a file the name `path`, unless it is taken.

    Filesystems without hard links (exFAT, buckets) have no rename that refuses to replace a file.
    There an empty file takes the name first, which is all that remains after a kill in between.
    """
    try:
        os.link(file, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        path.touch(exist_ok=False)
        try:
            file.rename(path)
        except BaseException:
            if file.exists():  # else it has been renamed, and an interrupt came just after
                path.unlink()
            raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        with named(path):
            os.fsync(handle)
    except OSError as error:  # network shares and buckets cannot sync a folder
        if error.errno not in _NO_SYNC or not path.is_dir():
            raise
    finally:
        os.close(handle)
