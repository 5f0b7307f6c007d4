"""Sinks of files in which everything but the tensors' bytes is known in advance."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlayout.errors import FormatError
from xlayout.port.formats.base import Bounds, TensorSpec
from xlayout.port.formats.boxes import Boxed, extent
from xlayout.port.formats.open_files import OpenFiles
from xlayout.port.formats.runs import read_box, write_box, write_full
from xlayout.port.formats.sink import StagedSink
from xlayout.port.units import parse_bytes

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["LaidOutSink", "Outline", "Stored"]

_HOW = os.O_RDWR | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Stored:
    """A box of a tensor, row-major from a place in a file on."""

    box: Bounds
    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class Outline:
    """All of a checkpoint's files except its tensors' bytes.

    Args:
        sizes: Bytes of each file that holds tensors.
        fixed: What else is in each of them: a place in the file, and the bytes there.
        places: Where each tensor is stored, in boxes that cover it.
        extras: Whole files that are written last.
    """

    sizes: Mapping[str, int]
    fixed: Mapping[str, Sequence[tuple[int, bytes]]]
    places: Mapping[str, Boxed[Stored]]
    extras: Mapping[str, bytes]


class LaidOutSink(StagedSink):
    """A sink whose files are laid out up front, so that regions go to their place in any order.

    Args:
        path: The directory that will appear, or the file, if it is named like one of this format.
        specs: Every tensor that will be written.
        config: Stored as config.json; not possible with a single file.
        max_shard_size: Bytes per file, as a number or "5GB", "200MiB".
        key: See `StagedSink`.
        beside: See `StagedSink`; not possible with a single file either.

    Attributes:
        suffix: How a single file's name ends; None if the format has only directories.

    Raises:
        FormatError: A tensor, name or config cannot be stored.
        PortError: The output already holds something, or the disk is too small.
    """

    suffix: str | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        specs: Mapping[str, TensorSpec],
        /,
        *,
        config: Mapping[str, Any] | None = None,
        max_shard_size: int | str = "5GB",
        key: str | None = None,
        beside: Mapping[str, Path | bytes] | None = None,
    ) -> None:
        single = Path(path).suffix == self.suffix
        if single and (config or beside):
            raise FormatError(f"{path}: one file has no place for a config; name a directory")
        limit = None if single else parse_bytes(max_shard_size, name="max_shard_size")
        self._outline = self._lay_out(specs, limit)
        super().__init__(
            path,
            specs,
            needed=sum(self._outline.sizes.values()),
            parts=self._outline.sizes,
            extras=self._outline.extras,
            config=config,
            single=single,
            key=key,
            beside=beside,
        )

    @abstractmethod
    def _lay_out(self, specs: Mapping[str, TensorSpec], limit: int | None, /) -> Outline:
        """Distribute tensors over files of at most `limit` bytes; None stands for one file."""

    def _create(self) -> None:
        self._files = OpenFiles(_HOW)
        for file, size in self._outline.sizes.items():
            handle = os.open(self._staging.folder / file, _HOW | os.O_CREAT, 0o666)
            try:
                # Claim the space now if the system can: a disk that is too small fails early.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(handle, 0, size)
                os.ftruncate(handle, size)
                for offset, content in self._outline.fixed[file]:
                    write_full(handle, content, offset)
            finally:
                os.close(handle)

    def _get(self, name: str, box: Bounds, out: Array) -> bool:
        self._move(name, box, out, read_box)
        return True

    def _put(self, name: str, array: Array, box: Bounds) -> None:
        self._move(name, box, array, write_box)

    def _move(self, name: str, box: Bounds, array: Array, move: Callable[..., None]) -> None:
        """Read or write a region in all files that have a part of it."""
        for stored, inner, part in self._outline.places[name].parts(box, array):
            spec = TensorSpec(self.tensors[name].dtype, extent(stored.box))
            with self._files.opened(self._staging.folder / stored.file) as handle:
                move(handle, stored.offset, spec, inner, part)

    def _release(self) -> None:
        self._files.close()
