"""A DCP directory being written, as one process saves it; `torch.distributed.checkpoint` reads it.

The form is that of `torch.save`, one archive a tensor: torch's other one, of safetensors, is not
read by its own `load`. All of a file but the tensors' bytes follows from their dtypes and shapes,
so it is there before them, and they come in any order.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlayout.port.formats.base import Bounds, TensorSpec
from xlayout.port.formats.config import render_config
from xlayout.port.formats.dcp import METADATA
from xlayout.port.formats.dcp_metadata import Item
from xlayout.port.formats.dcp_metadata_write import render_metadata
from xlayout.port.formats.runs import read_box, write_box, write_full
from xlayout.port.formats.safetensors_index import natural_key, shard
from xlayout.port.formats.sink import StagedSink
from xlayout.port.formats.torch_archive_write import ALIGNMENT, render_archive
from xlayout.port.units import parse_bytes

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["DCPSink", "dcp_files"]


def dcp_files(specs: Mapping[str, TensorSpec], limit: int, /) -> dict[str, list[str]]:
    """Deal tensors to files of at most `limit` bytes each; a larger tensor has a file of its own.

    >>> dcp_files({"a.2": TensorSpec("int8", (3,)), "a.1": TensorSpec("int16", (2,))}, 6)
    {'__0_0.distcp': ['a.1'], '__0_1.distcp': ['a.2']}
    """
    ordered = {name: specs[name] for name in sorted(specs, key=natural_key)}
    groups = [list(entries) for entries in shard(ordered, limit).values() if entries]
    return {f"__0_{number}.distcp": group for number, group in enumerate(groups)}


class DCPSink(StagedSink):
    """A DCP directory being written: files of at most `max_shard_size` bytes, and `.metadata`.

    Args:
        path: The directory that will appear.
        specs: Every tensor that will be written.
        config: Stored as config.json, which torch leaves alone.
        max_shard_size: Bytes per file, as a number or "5GB", "200MiB".
        key: See `StagedSink`.
        beside: See `StagedSink`.

    Raises:
        FormatError: A name or the config cannot be stored.
        PortError: The output already holds something, or the disk is too small.
    """

    format = "dcp"

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
        files = dcp_files(specs, parse_bytes(max_shard_size, name="max_shard_size"))
        self._archives = {name: render_archive(spec) for name, spec in specs.items()}
        self._items: dict[str, Item] = {}
        self._sizes: dict[str, int] = {}
        for file, names in files.items():
            position = 0
            for name in names:
                start = -(-position // ALIGNMENT) * ALIGNMENT
                length = specs[name].nbytes + sum(map(len, self._archives[name]))
                self._items[name] = Item(file, start, length)
                position = start + length
            self._sizes[file] = position
        placed = {name: (specs[name], item) for name, item in self._items.items()}
        self._extras = {"config.json": render_config(config)} if config else {}
        self._extras[METADATA] = render_metadata(placed)
        needed = sum(self._sizes.values()) + sum(map(len, self._extras.values()))
        super().__init__(
            path,
            {name: specs[name] for name in self._items},
            needed=needed,
            parts=self._sizes,
            key=key,
            beside=beside,
        )
        self._handles: dict[str, int] = {}
        self._begin()

    def _create(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        for file, size in self._sizes.items():
            handle = self._handles[file] = os.open(self._staging.folder / file, flags, 0o666)
            # Where the system can, claim the space now: a disk that is too small says so at once.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, size)
            os.ftruncate(handle, size)
        for name, item in self._items.items():
            front, back = self._archives[name]
            write_full(self._handles[item.file], front, item.offset)
            write_full(self._handles[item.file], back, item.offset + item.length - len(back))

    def _place(self, name: str) -> tuple[int, int]:
        item = self._items[name]
        return self._handles[item.file], item.offset + len(self._archives[name][0])

    def _get(self, name: str, box: Bounds, out: Array) -> bool:
        read_box(*self._place(name), self.tensors[name], box, out)
        return True

    def _put(self, name: str, array: Array, box: Bounds) -> None:
        write_box(*self._place(name), self.tensors[name], box, array)

    def _finish(self) -> None:
        self._release()
        for file, content in self._extras.items():
            (self._staging.folder / file).write_bytes(content)

    def _release(self) -> None:
        while self._handles:
            os.close(self._handles.popitem()[1])
