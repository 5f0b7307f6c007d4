"""Directories of torch.distributed.checkpoint (DCP) as byte ranges, without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlayout.errors import FormatError
from xlayout.port.formats.base import Bounds, Region, Source, TensorSpec, check_out, resolve
from xlayout.port.formats.boxes import extent
from xlayout.port.formats.config import read_config
from xlayout.port.formats.dcp_items import ItemFiles
from xlayout.port.formats.dcp_metadata import Chunk, Contents, parse_metadata
from xlayout.port.formats.file_names import refuse_outside, require_file
from xlayout.port.formats.git_lfs import refuse_pointer
from xlayout.port.formats.runs import read_box, reading

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["METADATA", "DCPSource"]

METADATA = ".metadata"

_MAX_METADATA = 1 << 30


class DCPSource(Source):
    """A directory that `torch.distributed.checkpoint.save` wrote, from any number of ranks.

    What is not a tensor, such as an optimizer's step, is named in `notes` and not examined.

    Raises:
        FormatError: The metadata is broken or hostile, or a file is missing, shorter than it says,
            or outside the directory.
    """

    format = "dcp"

    def __init__(self, path: str | os.PathLike[str], /) -> None:
        self.path = Path(path)
        contents = _read_metadata(self.path / METADATA)
        self.config: Mapping[str, Any] = read_config(self.path)
        self.home = self.path if self.config else None
        self.files: Mapping[str, int] = _sizes(self.path, contents)
        self.notes = tuple(sorted(contents.others))
        self._entries = contents.tensors
        self._files = ItemFiles(self.path.absolute(), self.files)
        self.tensors: Mapping[str, TensorSpec] = {
            name: entry.spec for name, entry in self._entries.items()
        }

    def read(self, name: str, region: Region | None = None, out: Array | None = None) -> Array:
        """Read one region of one tensor from the chunks it intersects; see `Source.read`."""
        entry = self._entries[name]
        box = resolve(region, entry.spec.shape)
        out = check_out(out, entry.spec.dtype, box)
        for chunk, inner, part in entry.boxed.parts(box, out):
            self._read_chunk(name, chunk, inner, part)
        return out

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _read_chunk(self, name: str, chunk: Chunk, inner: Bounds, into: Array) -> None:
        """Read a region of a chunk, seen from its corner."""
        spec = TensorSpec(self._entries[name].spec.dtype, extent(chunk.box))
        place = self._files.place(name, spec, chunk)
        stored = TensorSpec(spec.dtype, tuple(spec.shape[axis] for axis in place.order))
        cut = tuple(inner[axis] for axis in place.order)
        file = chunk.item.file
        with (
            reading(self.path / file, name),
            self._files.opened(self._files.folder / file) as handle,
        ):
            read_box(handle, place.offset, stored, cut, into.transpose(place.order))


def _read_metadata(path: Path) -> Contents:
    require_file(path, "a regular file, as every rank's save has")
    refuse_outside(path.parent, path.name)
    refuse_pointer(path)
    size = path.stat().st_size
    if size > _MAX_METADATA:
        raise FormatError(f"{path}: {size:,} bytes; wanted at most {_MAX_METADATA:,}")
    try:
        raw = path.read_bytes()
    except PermissionError as error:
        raise FormatError(f"{path}: {error.strerror}; wanted a readable file") from error
    return parse_metadata(raw, where=str(path))


def _sizes(folder: Path, contents: Contents) -> dict[str, int]:
    """Return the bytes of each file; a file that is too short for its items is refused."""
    items = [chunk.item for entry in contents.tensors.values() for chunk in entry.chunks]
    sizes = {METADATA: (folder / METADATA).stat().st_size}
    for item in items:
        path = folder / item.file
        if item.file not in sizes:
            require_file(path)
            refuse_outside(folder, item.file)
            sizes[item.file] = path.stat().st_size
        if item.offset + item.length > sizes[item.file]:
            refuse_pointer(path)
            raise FormatError(
                f"{path}: {sizes[item.file]} bytes, of which the metadata gives a chunk those up "
                f"to {item.offset + item.length}; the file may be cut short"
            )
    return sizes
