"""A DCP directory being written, as one process saves it; `torch.distributed.checkpoint` reads it.

The form is that of `torch.save`, one archive per tensor: torch's own `load` does not read its other
form, safetensors. Everything in a file except the tensors' bytes follows from their dtypes and
shapes, so it is written first, and regions then go to their place in any order.
"""

from __future__ import annotations

from collections.abc import Mapping

from xlayout.port.formats.base import TensorSpec
from xlayout.port.formats.dcp import METADATA
from xlayout.port.formats.dcp_metadata import Item
from xlayout.port.formats.dcp_metadata_write import render_metadata
from xlayout.port.formats.laid_out import LaidOutSink, Outline
from xlayout.port.formats.safetensors_index import shard
from xlayout.port.formats.torch_archive_write import ALIGNMENT, render_archive

__all__ = ["DCPSink", "dcp_files"]


def dcp_files(specs: Mapping[str, TensorSpec], limit: int | None, /) -> dict[str, list[str]]:
    """Distribute tensors over files of at most `limit` bytes; a larger tensor gets its own file.

    >>> half, most = TensorSpec("int8", (3,)), TensorSpec("int16", (2,))
    >>> dcp_files({"a.3": half, "a.2": half, "a.1": most}, 6)
    {'__0_0.distcp': ['a.1'], '__0_1.distcp': ['a.2', 'a.3']}
    """
    groups = [list(entries) for entries in shard(specs, limit).values() if entries]
    return {f"__0_{number}.distcp": group for number, group in enumerate(groups)}


class DCPSink(LaidOutSink):
    """A DCP directory being written: files `*.distcp`, `.metadata`, and a config torch ignores."""

    format = "dcp"

    def _lay_out(self, specs: Mapping[str, TensorSpec], limit: int | None, /) -> Outline:
        files = dcp_files(specs, limit)
        sizes: dict[str, int] = {}
        fixed: dict[str, list[tuple[int, bytes]]] = {file: [] for file in files}
        places: dict[str, tuple[str, int]] = {}
        placed: dict[str, tuple[TensorSpec, Item]] = {}
        for file, names in files.items():
            end = 0
            for name in names:
                start = -(-end // ALIGNMENT) * ALIGNMENT
                front, back = render_archive(specs[name])
                places[name] = file, start + len(front)
                behind = start + len(front) + specs[name].nbytes
                fixed[file] += [(start, front), (behind, back)]
                end = behind + len(back)
                placed[name] = specs[name], Item(file, start, end - start)
            sizes[file] = end
        return Outline(sizes, fixed, places, {METADATA: render_metadata(placed)})
