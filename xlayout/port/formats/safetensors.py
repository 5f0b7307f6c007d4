"""Safetensors as byte ranges: one file, or a directory of shards with an index."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlayout.errors import FormatError
from xlayout.port.formats.base import Region, Source, TensorSpec, check_out, resolve
from xlayout.port.formats.boxes import Boxed
from xlayout.port.formats.config import read_config
from xlayout.port.formats.file_names import refuse_outside, require_file
from xlayout.port.formats.git_lfs import refuse_pointer
from xlayout.port.formats.laid_out import LaidOutSink, Outline, Stored
from xlayout.port.formats.open_files import OpenFiles
from xlayout.port.formats.runs import read_box, reading
from xlayout.port.formats.safetensors_header import (
    MAX_HEADER,
    STANDARD,
    Entry,
    parse_header,
    render_header,
)
from xlayout.port.formats.safetensors_index import (
    INDEX,
    listed_files,
    refuse_mismatch,
    render_index,
    shard,
)
from xlayout.port.formats.system_errors import named

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["SafetensorsSink", "SafetensorsSource"]


class SafetensorsSource(Source):
    """A safetensors checkpoint: a file, or a directory whose index names the shards.

    Raises:
        FormatError: A header is broken or hostile; or the index names a file outside the directory
            or a tensor that its file lacks, or omits one that is there.
    """

    format = "safetensors"

    def __init__(self, path: str | os.PathLike[str], /) -> None:
        self.path = Path(path)
        folder = self.path.parent
        listed: Mapping[str, set[str] | None] = {self.path.name: None}
        if self.path.is_dir():
            folder, listed = self.path, listed_files(self.path)
            for file in listed:
                refuse_outside(folder, file)
        self.config: Mapping[str, Any] = read_config(folder)
        self.home = folder if self.config else None
        self._folder = folder.absolute()  # for files that are opened again, wherever we go
        self._files = OpenFiles(os.O_RDONLY)
        self._entries: dict[str, tuple[str, Entry]] = {}
        files: dict[str, int] = {}
        notes: set[str] = set()
        try:
            for file, names in listed.items():
                entries, metadata, files[file] = self._open(folder, file)
                notes |= {key for key, _ in metadata.items() - STANDARD.items()}
                if names is not None:
                    refuse_mismatch(entries, names, file=folder / file)
                self._entries |= {name: (file, entry) for name, entry in entries.items()}
        except BaseException:
            self.close()
            raise
        self.files: Mapping[str, int] = files
        self.notes = tuple(sorted(notes))
        self.tensors: Mapping[str, TensorSpec] = {
            name: entry.spec for name, (_, entry) in self._entries.items()
        }

    def read(self, name: str, region: Region | None = None, out: Array | None = None) -> Array:
        """Read one region of one tensor; see `Source.read`."""
        file, entry = self._entries[name]
        box = resolve(region, entry.spec.shape)
        out = check_out(out, entry.spec.dtype, box)
        path = self.path / file if self.path.is_dir() else self.path
        with reading(path, name), self._files.opened(self._folder / file) as handle:
            read_box(handle, entry.offset, entry.spec, box, out)
        return out

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _open(self, folder: Path, file: str) -> tuple[dict[str, Entry], dict[str, str], int]:
        path = folder / file
        require_file(path)
        try:
            with named(path), self._files.opened(self._folder / file) as handle:
                size = os.fstat(handle).st_size
                head = os.pread(handle, 8, 0)
                length = int.from_bytes(head, "little")
                if length > min(MAX_HEADER, size - 8):
                    refuse_pointer(path)
                    raise FormatError(f"{path}: {_unfit(head, size)}")
                raw = os.pread(handle, length, 8)
        except PermissionError as error:
            raise FormatError(f"{path}: {error.strerror}; wanted a readable file") from error
        return *parse_header(raw, data_size=size - 8 - length, file=str(path)), size


class SafetensorsSink(LaidOutSink):
    """A safetensors checkpoint being written: one file if named `*.safetensors`, or a directory.

    Tensors are placed in natural order of their names (layer 2 before layer 10), whatever the
    order of `specs`, so equal weights make equal files.
    """

    format = "safetensors"
    suffix = ".safetensors"

    def _lay_out(self, specs: Mapping[str, TensorSpec], limit: int | None, /) -> Outline:
        shards = shard(specs, limit)
        headers = {file: render_header(entries) for file, entries in shards.items()}
        return Outline(
            sizes={
                file: len(headers[file]) + sum(spec.nbytes for spec, _ in entries.values())
                for file, entries in shards.items()
            },
            fixed={file: [(0, header)] for file, header in headers.items()},
            places={
                name: Boxed(
                    [Stored(resolve(None, spec.shape), file, len(headers[file]) + offset)],
                    len(spec.shape),
                )
                for file, entries in shards.items()
                for name, (spec, offset) in entries.items()
            },
            extras={INDEX: render_index(shards)} if len(shards) > 1 else {},
        )


def _unfit(head: bytes, size: int) -> str:
    """Return why a file is not safetensors, by its first 8 bytes, and what would work."""
    if size < 8:
        return (
            f"a file of {size} bytes; wanted all of a safetensors file, so fetch or save it again"
        )
    length = int.from_bytes(head, "little")
    return (
        f"a header of {length} bytes in a file of {size}; wanted {min(MAX_HEADER, size - 8)} at "
        "most, so it is no safetensors file or was cut short"
    )
