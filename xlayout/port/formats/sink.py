"""The part of writing that every format shares: declare, check, count, then publish or remove."""

from __future__ import annotations

import os
import shutil
from abc import abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlayout.errors import FormatError, PortError, ShapeError
from xlayout.port.formats.base import Bounds, Region, Sink, TensorSpec, numpy_dtype, resolve
from xlayout.port.formats.boxes import extent
from xlayout.port.formats.config import CONFIG, render_config
from xlayout.port.formats.coverage import Coverage
from xlayout.port.formats.file_names import is_plain_name
from xlayout.port.formats.journal import Journal, checksum
from xlayout.port.formats.publish import Staging
from xlayout.port.formats.system_errors import AMISS

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["StagedSink"]

# Errors that do not invalidate the bytes already written: the next run may succeed.
_PASSING = (OSError, ImportError, MemoryError)


class StagedSink(Sink):
    """A sink whose files grow in a `Staging` folder; a format adds only how bytes are stored.

    The constructor calls `_create`, which makes the files in `self._staging.folder` or opens those
    that are there, so a subclass sets what it needs for that before. `_put` stores regions in them
    and `_get` reads them back, `_release` closes them, and `_finish` writes what is known only now.

    Args:
        path: Where the output will appear.
        specs: Every tensor that will be written.
        needed: Bytes that the files take which `_create` and `_finish` make.
        parts: The names in the folder that `_create` makes, and only `_create`.
        extras: Whole files of the format that are written last, by name.
        config: Stored as config.json.
        single: Whether the output is one file.
        key: Identifies what is being written. With one, a run that is interrupted or hits a system
            error leaves its files, and the next run with the same key continues in them; None
            starts afresh and leaves nothing.
        beside: Files that are published with the tensors, by the name they will have: their path,
            or their content.

    Raises:
        FormatError: The config cannot be stored, or a name of `beside` leads elsewhere or is one of
            the format's own.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        specs: Mapping[str, TensorSpec],
        /,
        *,
        needed: int,
        parts: Collection[str],
        extras: Mapping[str, bytes],
        config: Mapping[str, Any] | None = None,
        single: bool = False,
        key: str | None = None,
        beside: Mapping[str, Path | bytes] | None = None,
    ) -> None:
        self.tensors = dict(specs)
        self._coverage = Coverage(self.tensors)
        own = dict(extras) | ({CONFIG: render_config(config)} if config else {})
        for file in beside or ():
            if not is_plain_name(file) or file in {*parts, *own}:
                raise FormatError(
                    f"beside: {file!r:.200}; wanted the plain name of a file that the format does "
                    "not write itself"
                )
        self._last: Mapping[str, Path | bytes] = {**own, **(beside or {})}
        needed += sum(
            len(file) if isinstance(file, bytes) else file.stat().st_size
            for file in self._last.values()
        )
        self._journal: Journal | None = None
        self._open, self._sealed = True, False
        self._failed: BaseException | None = None
        self._staging = Staging(path, needed=needed, single=single, key=key)
        self._begin(parts, key)

    def _begin(self, parts: Collection[str], key: str | None) -> None:
        """Make the files, or open those of an interrupted run if they are intact."""
        try:
            self.path = self._staging.path
            with self._staging.watch():
                if self._staging.resumed:
                    try:
                        self._create()
                    except (OSError, ValueError) as error:
                        if isinstance(error, OSError) and error.errno not in AMISS:
                            raise
                        self._release()
                        self._staging.clear()
                        self._staging.resumed = False
                if self._staging.resumed:
                    # Drop companions that the run had copied: the source may no longer have them.
                    self._staging.clear(keep=parts)
                else:
                    self._create()
                if key is not None:
                    self._journal = Journal(self._staging.hidden, key)
        except BaseException as error:
            self._stop(error)
            raise

    def __exit__(self, *raised: object) -> None:
        self._stop(raised[1])

    def holds(self, name: str, region: Region, out: Array) -> bool:
        """Whether an interrupted run wrote a region; see `Sink.holds`."""
        box = resolve(region, self.tensors[name].shape)
        claimed = self._journal.claim(name, box) if self._journal else None
        with self._staging.watch():
            if claimed is None or not self._get(name, box, out) or checksum(out) != claimed:
                return False
        self._coverage.claim(name, box)
        return True

    def write(self, name: str, array: Array, region: Region | None = None) -> None:
        """Write one region of one tensor; see `Sink.write`."""
        if self._failed:
            raise self._failed
        if not self._open or self._sealed:
            raise PortError(
                f"{self.path}: sealed, committed or aborted; nothing can be written any more"
            )
        spec = self.tensors[name]
        box = resolve(region, spec.shape)
        shape = extent(box)
        if array.shape != shape or array.dtype != numpy_dtype(spec.dtype):
            raise ShapeError(
                f"{name}: {array.dtype}{array.shape}; the region is {spec.dtype}{shape}"
            )
        self._fit(name, box)
        self._coverage.claim(name, box)
        try:
            with self._staging.watch():
                self._put(name, array, box)
                if self._journal:
                    self._journal.note(name, box, checksum(array))
        except BaseException as error:
            # Other threads may be writing, so the files stay open until the sink is closed.
            self._failed = self._failed or error
            raise

    def seal(self) -> Path:
        """Finish the files and return where they are; see `Sink.seal`."""
        if self._failed:
            raise self._failed
        if not self._open:
            raise PortError(f"{self.path}: committed or aborted before")
        if not self._sealed:
            self._complete()
        return self._staging.content

    def _complete(self) -> None:
        if missing := self._coverage.missing():
            shown = [f"{name} lacks {n:,} elements" for name, n in list(missing.items())[:8]]
            raise PortError(
                f"{self.path}: {len(missing)} tensors are not fully written: {'; '.join(shown)}"
            )
        try:
            with self._staging.watch():
                self._release()
                self._finish()
                for file, source in self._last.items():
                    if isinstance(source, bytes):
                        (self._staging.folder / file).write_bytes(source)
                    else:
                        shutil.copyfile(source, self._staging.folder / file)
        except BaseException as error:
            self._stop(error)
            raise
        self._sealed = True

    def commit(self) -> None:
        """Publish atomically; see `Sink.commit`."""
        self.seal()
        try:
            self._staging.publish()
        except BaseException as error:
            self._stop(error)
            raise
        self._close()

    def abort(self) -> None:
        """Remove everything written so far; harmless after `commit`."""
        self._stop(None)

    def _stop(self, error: object) -> None:
        """End, with or without an output, and add to the error what became of it."""
        if not self._open:
            return
        self._release()
        begun = self._journal is not None or self._staging.resumed
        self._close()
        failed = error is None or (isinstance(error, Exception) and not isinstance(error, _PASSING))
        if self._staging.published:
            self._staging.discard()
            note = "the output was complete by then"
        elif failed or not begun:
            self._staging.discard()
            return
        else:
            self._staging.leave()
            note = "what was written is kept, and the same command goes on from there"
        if isinstance(error, BaseException):
            error.add_note(note)

    def _close(self) -> None:
        self._open = False
        if self._journal:
            self._journal.close()

    def _fit(self, name: str, box: Bounds) -> None:
        """Refuse a region that the format cannot store on its own."""

    @abstractmethod
    def _create(self) -> None:
        """Make the files in the staging folder, or open them if they are there already."""

    @abstractmethod
    def _get(self, name: str, box: Bounds, out: Array) -> bool:
        """Read back a region that was stored; return whether there is one."""

    @abstractmethod
    def _put(self, name: str, array: Array, box: Bounds) -> None:
        """Store one region that is known to fit and to be new."""

    def _finish(self) -> None:
        """Write what else belongs to the format, beside the extras, once the files are closed."""

    @abstractmethod
    def _release(self) -> None:
        """Close the files; doing so again is harmless."""
