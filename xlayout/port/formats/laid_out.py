"""Sinks of files in which everything but the tensors' bytes is known in advance."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xlayout.port.formats.base import Bounds, TensorSpec
from xlayout.port.formats.open_files import OpenFiles
from xlayout.port.formats.runs import read_box, write_box, write_full
from xlayout.port.formats.sink import StagedSink

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["LaidOutSink"]

_HOW = os.O_RDWR | os.O_NOFOLLOW


class LaidOutSink(StagedSink):
    """A sink whose files are laid out up front, so that regions go to their place in any order.

    Args:
        path: Where the output will appear.
        specs: Every tensor that will be written.
        sizes: Bytes of each file that holds tensors.
        fixed: What else is in each of them: a place in the file, and the bytes there.
        places: The file of each tensor, and where its bytes begin in it.
        extras: Whole files that are written last.
        single: See `StagedSink`.
        key: See `StagedSink`.
        beside: See `StagedSink`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        specs: Mapping[str, TensorSpec],
        /,
        *,
        sizes: Mapping[str, int],
        fixed: Mapping[str, Sequence[tuple[int, bytes]]],
        places: Mapping[str, tuple[str, int]],
        extras: Mapping[str, bytes],
        single: bool = False,
        key: str | None = None,
        beside: Mapping[str, Path | bytes] | None = None,
    ) -> None:
        needed = sum(sizes.values()) + sum(map(len, extras.values()))
        super().__init__(
            path, specs, needed=needed, parts=sizes, single=single, key=key, beside=beside
        )
        self._sizes, self._fixed, self._places, self._extras = sizes, fixed, places, extras
        self._begin()

    def _create(self) -> None:
        self._files = OpenFiles(_HOW)
        for file, size in self._sizes.items():
            handle = os.open(self._staging.folder / file, _HOW | os.O_CREAT, 0o666)
            try:
                # Claim the space now if the system can: a disk that is too small fails early.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(handle, 0, size)
                os.ftruncate(handle, size)
                for offset, content in self._fixed[file]:
                    write_full(handle, content, offset)
            finally:
                os.close(handle)

    def _get(self, name: str, box: Bounds, out: Array) -> bool:
        file, offset = self._places[name]
        with self._files.opened(self._staging.folder / file) as handle:
            read_box(handle, offset, self.tensors[name], box, out)
        return True

    def _put(self, name: str, array: Array, box: Bounds) -> None:
        file, offset = self._places[name]
        with self._files.opened(self._staging.folder / file) as handle:
            write_box(handle, offset, self.tensors[name], box, array)

    def _finish(self) -> None:
        self._release()
        for file, content in self._extras.items():
            (self._staging.folder / file).write_bytes(content)

    def _release(self) -> None:
        self._files.close()
