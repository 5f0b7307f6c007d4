"""Sinks of files in which everything but the tensors' bytes is known in advance."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xlayout.port.formats.base import Bounds, TensorSpec
from xlayout.port.formats.runs import read_box, write_box, write_full
from xlayout.port.formats.sink import StagedSink

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["LaidOutSink"]


class LaidOutSink(StagedSink):
    """A sink whose files are laid out up front, so that regions go to their place in any order.

    Args:
        path: Where the output will appear.
        specs: Every tensor that will be written.
        sizes: Bytes of each file that holds tensors.
        fixed: What else is in these files: a file, a place in it, and the bytes there.
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
        fixed: Sequence[tuple[str, int, bytes]],
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
        self._handles: dict[str, int] = {}
        self._begin()

    def _create(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        for file, size in self._sizes.items():
            handle = self._handles[file] = os.open(self._staging.folder / file, flags, 0o666)
            # Claim the space now if the system can, so that a disk that is too small fails early.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, size)
            os.ftruncate(handle, size)
        for file, offset, content in self._fixed:
            write_full(self._handles[file], content, offset)

    def _get(self, name: str, box: Bounds, out: Array) -> bool:
        file, offset = self._places[name]
        read_box(self._handles[file], offset, self.tensors[name], box, out)
        return True

    def _put(self, name: str, array: Array, box: Bounds) -> None:
        file, offset = self._places[name]
        write_box(self._handles[file], offset, self.tensors[name], box, array)

    def _finish(self) -> None:
        self._release()
        for file, content in self._extras.items():
            (self._staging.folder / file).write_bytes(content)

    def _release(self) -> None:
        while self._handles:
            os.close(self._handles.popitem()[1])
