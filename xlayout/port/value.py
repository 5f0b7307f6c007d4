"""A plan as a value: everything that a port will do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlayout.port.formats import TensorSpec
from xlayout.port.formats.base import Bounds
from xlayout.port.formats.boxes import volume
from xlayout.port.formats.chunk_grid import chunk_shape, stored_bytes
from xlayout.port.formats.dcp_sink import dcp_files
from xlayout.port.formats.safetensors_index import shard
from xlayout.port.losses import Loss
from xlayout.port.move import Move
from xlayout.port.ranks import Held, shares_of
from xlayout.port.show_plan import plan_table
from xlayout.shard import Mesh
from xlayout.table import Table, Tabled

__all__ = ["SHARD_BYTES", "PortPlan"]

SHARD_BYTES = 5_000_000_000  # the most in one file, as on the Hugging Face hub


@dataclass(frozen=True, slots=True)
class PortPlan(Tabled):
    """Everything a port will do; `print` it, or let rich do so.

    Args:
        src: The checkpoint that is read.
        dst: Where the new one will appear.
        family: The rules.
        dialects: The names of the rules on both sides.
        format: The file format that is written.
        moves: The move of every canonical tensor.
        specs: Every tensor that will be written.
        chunks: The extent in which each of them is written.
        read_bytes: Bytes of the files that are read.
        lanes: How many tiles are moved at a time.
        buffer_bytes: The most memory that tensor data will take, apart from chunks that are cut.
        max_ram: The bound it was fitted to.
        exact: Whether nothing may be lost; what the dtypes do not prove is then checked.
        ignored: Source names that add no information.
        losses: What is lost, in a sample; empty if the port is exact.
        unkept: What the source has besides its weights, and is not ported.
        widened: Tensors stored wider than before, to be exact, with the dtype they had.
        config: What is written beside the weights.
        companions: Files that are copied along, by name: the tokenizer and the like.
        strays: What else is beside the source's config, and is not copied; folders end with `/`.
        extras: Small files that the format's own readers expect, by name.
        unplaced: Files that a directory would hold, but for which a single file has no place.
        taken: Why a run would be refused because of its place: something is there, its folder
            cannot be written to, or the disk has too little room; empty if it would not.
        mesh: The ranks for which tensors are cut; None if there are none.
        held: The boxes of each tensor that each rank of the mesh holds, or without a mesh the one
            rank that writes; empty if the format needs no such boxes.
    """

    src: Path
    dst: Path
    family: str
    dialects: tuple[str, str]
    format: str
    moves: tuple[Move, ...]
    specs: Mapping[str, TensorSpec]
    chunks: Mapping[str, tuple[int, ...]]
    read_bytes: int
    lanes: int
    buffer_bytes: int
    max_ram: int
    exact: bool
    ignored: tuple[str, ...]
    losses: tuple[Loss, ...]
    unkept: tuple[str, ...]
    widened: Mapping[str, str]
    config: Mapping[str, Any]
    companions: Mapping[str, Path]
    strays: tuple[str, ...]
    extras: Mapping[str, bytes]
    unplaced: tuple[str, ...]
    taken: str
    mesh: Mesh | None
    held: Mapping[str, Held]

    @property
    def files(self) -> dict[str, int]:
        """Bytes of tensor data per file; an Orbax tree counts as one file.

        Chunks at the edge of a tensor are stored whole, so they may take more than its bytes.
        """
        if self.format == "maxtext":
            specs = self.specs.items()
            return {"0/items": sum(stored_bytes(spec, self.chunks[name]) for name, spec in specs)}
        if self.dst.suffix == ".safetensors":
            return {self.dst.name: self.write_bytes}
        if self.format == "dcp":
            dealt = dcp_files(self.specs, SHARD_BYTES, shares_of(self.held)).items()
            return {
                file: sum(self._nbytes(name, box) for name, box in boxes) for file, boxes in dealt
            }
        return {
            file: sum(spec.nbytes for spec, _ in entries.values())
            for file, entries in shard(self.specs, SHARD_BYTES).items()
        }

    @property
    def write_bytes(self) -> int:
        """Bytes of tensor data that will be written, before any compression."""
        return sum(spec.nbytes for spec in self.specs.values())

    @property
    def rank_bytes(self) -> tuple[int, ...]:
        """Bytes of tensor data that each rank of the mesh has to read; `()` without a mesh.

        Of a DCP they are those that it holds. An Orbax tree is read by chunks, whose edges are
        where those of ranks are if the tiles of the port allow it.
        """
        if self.mesh is None:
            return ()
        ranks = [0] * self.mesh.size
        for name, held in self.held.items():
            for rank, boxes in enumerate(held):
                ranks[rank] += sum(self._nbytes(name, self._read(name, box)) for box in boxes)
        return tuple(ranks)

    def _read(self, name: str, box: Bounds) -> Bounds:
        """Return the box of the whole chunks that have some of a box."""
        if self.format != "maxtext":
            return box
        chunk = chunk_shape(self.chunks[name], self.specs[name].itemsize)
        pairs = zip(box, chunk, strict=True)
        return tuple((start // c * c, -(-stop // c) * c) for (start, stop), c in pairs)

    def _nbytes(self, name: str, box: Bounds) -> int:
        return volume(box) * self.specs[name].itemsize

    def _table(self) -> Table:
        return plan_table(self)
