"""A DCP directory being written, as ranks save it; `torch.distributed.checkpoint` reads it.

The form is that of `torch.save`, one archive per chunk: torch's own `load` does not read its other
form, safetensors. Everything in a file except the chunks' bytes follows from their dtypes and
shapes, so it is written first, and regions then go to their place in any order.

A rank that loads its part of a tensor reads whole chunks. If each tensor is one chunk, every rank
reads all of the checkpoint; if chunks are the parts that ranks hold, each reads its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from xlayout.errors import ShapeError
from xlayout.port.formats.base import Bounds, TensorSpec, resolve
from xlayout.port.formats.boxes import Boxed, extent, volume
from xlayout.port.formats.dcp import METADATA
from xlayout.port.formats.dcp_metadata import Chunk, Item
from xlayout.port.formats.dcp_metadata_write import render_metadata
from xlayout.port.formats.file_names import natural_key
from xlayout.port.formats.laid_out import LaidOutSink, Outline, Stored
from xlayout.port.formats.torch_archive_write import ALIGNMENT, render_archive

__all__ = ["DCPSink", "Shares", "dcp_files"]

Shares: TypeAlias = Mapping[str, Sequence[tuple[int, Bounds]]]
"""For each tensor the boxes that are stored apart, together all of it, each with its rank."""


def dcp_files(
    specs: Mapping[str, TensorSpec], limit: int | None, shares: Shares | None = None, /
) -> dict[str, list[tuple[str, Bounds]]]:
    """Distribute boxes of tensors over files of at most `limit` bytes, for each rank its own.

    A larger box has a file of its own. Tensors without shares are rank 0's.

    Raises:
        ShapeError: The boxes of a tensor do not add up to all of it.

    >>> half, most = TensorSpec("int8", (3,)), TensorSpec("int16", (2,))
    >>> dcp_files({"a.3": half, "a.2": half, "a.1": most}, 6)
    ... # doctest: +NORMALIZE_WHITESPACE
    {'__0_0.distcp': [('a.1', ((0, 2),))],
     '__0_1.distcp': [('a.2', ((0, 3),)), ('a.3', ((0, 3),))]}
    >>> dcp_files({"a": half}, None, {"a": [(0, ((0, 2),)), (1, ((2, 3),))]})
    {'__0_0.distcp': [('a', ((0, 2),))], '__1_0.distcp': [('a', ((2, 3),))]}
    """
    owned: dict[int, list[tuple[str, Bounds]]] = {}
    for name in sorted(specs, key=natural_key):
        boxes = (shares or {}).get(name) or [(0, resolve(None, specs[name].shape))]
        size, all_of_it = sum(volume(box) for _, box in boxes), specs[name].size
        if size != all_of_it:
            raise ShapeError(
                f"shares: {name!r:.200}: boxes of {size:,} elements; wanted all {all_of_it:,}"
            )
        for rank, box in boxes:
            owned.setdefault(rank, []).append((name, box))
    files: dict[str, list[tuple[str, Bounds]]] = {}
    for rank, own in sorted(owned.items()):
        number, filled = 0, 0
        for name, box in own:
            nbytes = volume(box) * specs[name].itemsize
            if limit is not None and filled and filled + nbytes > limit:
                number, filled = number + 1, 0
            files.setdefault(f"__{rank}_{number}.distcp", []).append((name, box))
            filled += nbytes
    return files


class DCPSink(LaidOutSink):
    """A DCP directory being written: files `*.distcp`, `.metadata`, and a config torch ignores.

    Args:
        *args: See `LaidOutSink`.
        shares: The boxes that are stored apart; None stores each tensor whole, by rank 0.
        **options: See `LaidOutSink`.

    Raises:
        ShapeError: The boxes of a tensor do not add up to all of it.
    """

    format = "dcp"

    def __init__(self, *args: Any, shares: Shares | None = None, **options: Any) -> None:
        self._shares = shares
        super().__init__(*args, **options)

    def _lay_out(self, specs: Mapping[str, TensorSpec], limit: int | None, /) -> Outline:
        files = dcp_files(specs, limit, self._shares)
        sizes: dict[str, int] = {}
        fixed: dict[str, list[tuple[int, bytes]]] = {file: [] for file in files}
        places: dict[str, list[Stored]] = {}
        chunks: dict[str, list[Chunk]] = {}
        archive = cache(render_archive)  # a model has many chunks, but only a few kinds of them
        for file, boxes in files.items():
            end = 0
            for name, box in boxes:
                spec = TensorSpec(specs[name].dtype, extent(box))
                start = -(-end // ALIGNMENT) * ALIGNMENT
                front, back = archive(spec)
                places.setdefault(name, []).append(Stored(box, file, start + len(front)))
                behind = start + len(front) + spec.nbytes
                fixed[file] += [(start, front), (behind, back)]
                end = behind + len(back)
                chunks.setdefault(name, []).append(Chunk(box, Item(file, start, end - start)))
            sizes[file] = end
        boxed = {name: Boxed(of, len(specs[name].shape)) for name, of in places.items()}
        tensors = {name: (specs[name], of) for name, of in chunks.items()}
        return Outline(sizes, fixed, boxed, {METADATA: render_metadata(tensors)})
