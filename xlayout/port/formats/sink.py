"""The part of writing that every format shares: declare, check, count, then publish or vanish."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from xlayout.errors import PortError, ShapeError
from xlayout.port.formats.base import Bounds, Region, Sink, TensorSpec, numpy_dtype, resolve
from xlayout.port.formats.coverage import Coverage
from xlayout.port.formats.publish import Staging

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["StagedSink"]


class StagedSink(Sink):
    """A sink whose files grow in a `Staging` folder; a format adds only how bytes are laid down.

    A subclass makes its files in `self._staging.folder` after this constructor, and aborts if it
    cannot; `_put` lays regions down in them, `_finish` or `_release` closes them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        specs: Mapping[str, TensorSpec],
        /,
        *,
        needed: int,
        single: bool = False,
    ) -> None:
        self.tensors = dict(specs)
        self._coverage = Coverage(self.tensors)
        self._staging = Staging(path, needed=needed, single=single)
        self._open = True
        self.path = self._staging.path

    def write(self, name: str, array: Array, region: Region | None = None) -> None:
        """Write one region of one tensor; see `Sink.write`."""
        if not self._open:
            raise PortError(f"{self.path}: committed or aborted; nothing can be written any more")
        spec = self.tensors[name]
        box = resolve(region, spec.shape)
        extent = tuple(stop - start for start, stop in box)
        if array.shape != extent or array.dtype != numpy_dtype(spec.dtype):
            raise ShapeError(
                f"{name}: {array.dtype}{array.shape}; the region is {spec.dtype}{extent}"
            )
        self._fit(name, box)
        self._coverage.claim(name, box)
        try:
            with self._staging.watch():
                self._put(name, array, box)
        except BaseException:
            self.abort()
            raise

    def commit(self) -> None:
        """Publish atomically; see `Sink.commit`."""
        if not self._open:
            raise PortError(f"{self.path}: committed or aborted before")
        if missing := self._coverage.missing():
            shown = [f"{name} lacks {n:,} elements" for name, n in list(missing.items())[:8]]
            raise PortError(
                f"{self.path}: {len(missing)} tensors are not fully written: {'; '.join(shown)}"
            )
        try:
            with self._staging.watch():
                self._finish()
            self._staging.publish()
        except BaseException:
            self.abort()
            raise
        self._open = False

    def abort(self) -> None:
        """Remove everything written so far; harmless after `commit`."""
        if self._open:
            self._open = False
            self._release()
            self._staging.discard()

    def _fit(self, name: str, box: Bounds) -> None:
        """Refuse a region that the format cannot take on its own."""

    @abstractmethod
    def _put(self, name: str, array: Array, box: Bounds) -> None:
        """Lay down one region that is known to fit and to be new."""

    @abstractmethod
    def _finish(self) -> None:
        """Write what comes last and close the files."""

    @abstractmethod
    def _release(self) -> None:
        """Close the files without finishing them."""
