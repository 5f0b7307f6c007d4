"""The files of a DCP directory, and where in them the bytes of each chunk are.

An item is one chunk as torch serialized it: an archive as made by `torch.save`, or a tensor in a
safetensors file with all of the file's chunks. It is examined when the chunk is first read, since
there may be hundreds of thousands, and the metadata has all that a plan needs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from xlayout.errors import FormatError
from xlayout.port.formats.base import TensorSpec
from xlayout.port.formats.dcp_metadata import Chunk, Item
from xlayout.port.formats.open_files import OpenFiles
from xlayout.port.formats.safetensors_header import MAX_HEADER, Entry, parse_header
from xlayout.port.formats.strict_json import parse_json
from xlayout.port.formats.system_errors import named
from xlayout.port.formats.torch_archive import Record, read_archive
from xlayout.port.formats.torch_tensor import STORAGE, Strided, parse_tensor

__all__ = ["ItemFiles", "Location"]

_PICKLE = 1 << 16  # bytes at most of the pickle with a tensor's dtype and shape
_MOST_KINDS = 1000  # of pickles that are remembered
_SHARDING = "DCP_SHARDING_INFO"


@dataclass(frozen=True, slots=True)
class Location:
    """Where a chunk's bytes begin in its file, and the order of its axes there."""

    offset: int
    order: tuple[int, ...]


class ItemFiles(OpenFiles):
    """The files, opened as they are needed, from any thread.

    Args:
        folder: The directory, by a path that holds wherever the process goes.
        sizes: Bytes of each file, by its name.
    """

    def __init__(self, folder: Path, sizes: Mapping[str, int], /) -> None:
        super().__init__(os.O_RDONLY)
        self.folder, self._sizes = folder, sizes
        self._places: dict[tuple[Item, str], Location] = {}
        self._tensors: dict[bytes, Strided] = {}
        self._headers: dict[tuple[str, int], dict[str, tuple[Entry, object]]] = {}

    def place(self, name: str, spec: TensorSpec, chunk: Chunk, /) -> Location:
        """Return where the bytes of a chunk are.

        Args:
            name: Its tensor.
            spec: The chunk's own dtype and shape.
            chunk: The chunk.

        Raises:
            FormatError: Something other than this chunk was serialized there.
        """
        known = self._places.get((chunk.item, name))
        if known is None:
            file = self.folder / chunk.item.file
            with named(file), self.opened(file) as handle:
                known = self._places[chunk.item, name] = self._find(handle, name, spec, chunk)
        return known

    def _find(self, handle: int, name: str, spec: TensorSpec, chunk: Chunk) -> Location:
        item = chunk.item
        starts = [start for start, _ in chunk.box]
        where = f"{self.folder / item.file}: {name!r:.200}: its chunk at {starts}"

        def refuse(what: str, wanted: str) -> NoReturn:
            raise FormatError(f"{where}: {what}; wanted {wanted}")

        if os.pread(handle, 4, item.offset) == b"PK\3\4":
            records = read_archive(handle, item.offset, item.length, where=where)

            def content(record: str) -> bytes:
                place = records.get(record, Record(0, 0))
                return os.pread(handle, min(place.size, _PICKLE), item.offset + place.offset)

            if (order := content("byteorder")) not in (b"", b"little"):
                refuse(f"byte order {order!r:.40}", "little-endian values")
            strided = self._parsed(content("data.pkl"), where)
            data = records.get(f"data/{STORAGE}")
            if strided.spec != spec or data is None or data.size != spec.nbytes:
                stored = "no" if data is None else data.size
                refuse(f"{strided.spec} and {stored} bytes", f"{spec} and {spec.nbytes} bytes")
            return Location(item.offset + data.offset, strided.order)
        entry, offsets = self._header(handle, item, where).get(name, (None, None))
        if entry is None or offsets not in (None, starts) or entry.spec != spec:
            found = f"{entry.spec} from {offsets}" if entry else "nothing under its name"
            refuse(found, f"{spec} from {starts}")
        if item.length != spec.nbytes:
            refuse(f"{item.length} bytes in the metadata", f"{spec.nbytes}")
        return Location(item.offset + entry.offset, tuple(range(len(spec.shape))))

    def _parsed(self, pickle: bytes, where: str) -> Strided:
        """Return what a tensor's pickle says; chunks of one shape have the same."""
        known = self._tensors.get(pickle)
        if known is None:
            known = parse_tensor(pickle, where=where)
            if len(self._tensors) < _MOST_KINDS:
                self._tensors[pickle] = known
        return known

    def _header(self, handle: int, item: Item, where: str) -> dict[str, tuple[Entry, object]]:
        """Return the tensors of the safetensors file that begins where an item does.

        Each comes with its place in the whole tensor, as the file states it.
        """
        key = (item.file, item.offset)
        if key not in self._headers:
            room = self._sizes[item.file] - item.offset
            length = int.from_bytes(os.pread(handle, 8, item.offset), "little")
            if length > min(MAX_HEADER, room - 8):
                raise FormatError(
                    f"{where}: neither an archive of torch.save nor a safetensors file; wanted one"
                )
            raw = os.pread(handle, length, item.offset + 8)
            entries, notes = parse_header(raw, data_size=room - 8 - length, file=where)
            said = parse_json(notes.get(_SHARDING, "{}").encode(), file=where)
            self._headers[key] = {
                name: (entry, _saved_offsets(said, name)) for name, entry in entries.items()
            }
        return self._headers[key]


def _saved_offsets(said: object, name: str) -> object:
    """Return the offset of a part in the whole tensor, if the file states it."""
    of = said.get(name) if isinstance(said, dict) else None
    return of.get("saved_offsets") if isinstance(of, dict) else None
