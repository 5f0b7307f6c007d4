"""The plan of a port: how every tensor is moved, from headers alone, before a byte moves.

Beyond headers it reads only samples of tensors that might lose values, because how many are lost
depends on the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from xlayout.errors import PortError
from xlayout.port.change import Change, exact_dtype
from xlayout.port.checkpoint import Checkpoint, open_checkpoint
from xlayout.port.companions import find_companions, find_strays
from xlayout.port.configs import plain_config, with_maxtext
from xlayout.port.family import Dialect, Family
from xlayout.port.fit import fit_port
from xlayout.port.formats import TensorSpec
from xlayout.port.formats.config import render_config
from xlayout.port.formats.dcp_sink import dcp_files
from xlayout.port.formats.file_names import given_path
from xlayout.port.formats.maxtext import stored_bytes
from xlayout.port.formats.publish import why_taken
from xlayout.port.formats.safetensors_index import shard
from xlayout.port.lanes import lanes_for
from xlayout.port.losses import Loss, measure, roomier
from xlayout.port.move import Move
from xlayout.port.places import Place
from xlayout.port.refusals import (
    output_path,
    refuse_dtype,
    refuse_mesh,
    refuse_mixed_stacks,
    refuse_place,
    refuse_unless_bool,
)
from xlayout.port.show_plan import plan_table
from xlayout.port.units import parse_bytes
from xlayout.table import Table, Tabled

__all__ = ["SHARD_BYTES", "PortPlan", "plan", "plan_open"]

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
        taken: Why a run would be refused because of what is at `dst`; empty if it would not.
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
            dealt = dcp_files(self.specs, SHARD_BYTES).items()
            return {file: sum(self.specs[name].nbytes for name in names) for file, names in dealt}
        return {
            file: sum(spec.nbytes for spec, _ in entries.values())
            for file, entries in shard(self.specs, SHARD_BYTES).items()
        }

    @property
    def write_bytes(self) -> int:
        """Bytes of tensor data that will be written, before any compression."""
        return sum(spec.nbytes for spec in self.specs.values())

    def _table(self) -> Table:
        return plan_table(self)


def plan(
    src: str | PathLike[str],
    dst: str | PathLike[str],
    *,
    to: str,
    family: str | Family | None = None,
    dtype: str | None = None,
    mesh: None = None,
    max_ram: int | str = "512MiB",
    exact: bool = True,
) -> PortPlan:
    """Plan a port: names, layouts, dtypes, bytes, memory, and what would be lost.

    Args:
        src: A checkpoint: safetensors file or directory, GGUF file, Orbax or DCP directory.
        dst: Where the new checkpoint will appear: absent, or an empty directory. If something is
            there, the plan says that a run is refused.
        to: The names and layouts to write: "hf", "dcp", "maxtext", …; `families()` lists them.
            "safetensors" means "hf".
        family: The rules to follow: a `Family`, or the name of one that `families()` lists; None
            goes by the config's `architectures`.
        dtype: The dtype to write; None keeps each tensor's own.
        mesh: None: one checkpoint for all ranks, which shard it as they read it.
        max_ram: The most memory that tensor data may take, in bytes or as "512MiB". A chunk of an
            Orbax tree that must be read whole to get a part of it counts twice: stored and decoded.
        exact: Refuse to lose anything: tensors whose values are scaled are stored wide enough to
            come back bit for bit (NaN as NaN). False rounds them, and the plan says how many
            elements change.

    Raises:
        FormatError: The source is broken, or tensorstore cannot be told where to write.
        PortError: Names or shapes do not match the rules, a buffer does not fit in `max_ram`, the
            values would not come back although `exact` is asked for, or an argument makes no
            sense.
        TypeError: `exact` is neither True nor False, or another argument has a wrong type.

    >>> from xlayout.port.demo.weights import make_tiny
    >>> gguf = make_tiny()  # a Llama of two layers, in a temporary folder
    >>> move = plan(gguf, gguf.with_name("hf"), to="hf").moves[3]
    >>> print(move.source.tensor, "→", move.target.tensor, ":", move.layout())
    blk.0.attn_q.weight → model.layers.0.self_attn.q_proj.weight : (a=6 b=32 c=2) d=96 -> (a c b) d
    """
    refuse_mesh(mesh)
    refuse_unless_bool(exact=exact)
    budget, where = parse_bytes(max_ram), output_path(dst)
    with open_checkpoint(given_path(src, "src"), family=family) as checkpoint:
        return plan_open(checkpoint, where, to=to, dtype=dtype, max_ram=budget, exact=exact)


def plan_open(
    checkpoint: Checkpoint, dst: Path, /, *, to: str, dtype: str | None, max_ram: int, exact: bool
) -> PortPlan:
    """Plan the port of a checkpoint that is open; see `plan`."""
    key, dialect = _dialect(checkpoint, to)
    refuse_place(dst, to, dialect.format)
    companions = find_companions(checkpoint.source)
    single = dst.suffix == ".safetensors"
    refuse_dtype(dtype)
    moves = fit_port(_moves(checkpoint, dialect, dtype, exact), max_ram)
    # Measuring reads data, in chunks that are known to fit by now.
    losses = measure(checkpoint.source, moves)
    if exact and any(loss.lost for loss in losses):
        moves = fit_port(roomier(moves, losses, dtype), max_ram)
    refuse_mixed_stacks(moves)
    specs = {
        move.target.tensor: TensorSpec(
            move.change.target, move.target.rule.target_shape(checkpoint.sizes)
        )
        for move in moves
    }
    widened = {} if dtype else _widened(checkpoint, moves)
    need = max(move.need for move in moves)
    lanes = lanes_for(need + max(move.held for move in moves), max_ram)
    return PortPlan(
        src=checkpoint.source.path,
        dst=dst,
        family=checkpoint.family.name,
        dialects=(checkpoint.dialect, key),
        format=dialect.format,
        moves=tuple(moves),
        specs=specs,
        chunks={move.target.tensor: _extent(move) for move in reversed(moves)},
        read_bytes=sum(checkpoint.source.files.values()),
        lanes=lanes,
        buffer_bytes=lanes * need,
        max_ram=max_ram,
        exact=exact,
        ignored=checkpoint.ignored,
        losses=() if exact else tuple(loss for loss in losses if loss.lost),
        unkept=checkpoint.unkept,
        widened=widened,
        config=_config(checkpoint, dialect, moves, widened),
        companions={} if single else companions,
        strays=find_strays(checkpoint.source, companions, own=checkpoint.rules.files),
        extras=dict(dialect.files),
        unplaced=("config.json", *companions) if single else (),
        taken=why_taken(dst, single=single),
    )


def _dialect(checkpoint: Checkpoint, to: Any) -> tuple[str, Dialect]:
    key: str = "hf" if to == "safetensors" else to
    dialects = checkpoint.family.dialects
    written = [name for name, dialect in dialects.items() if dialect.format != "gguf"]
    if key not in written:
        error = PortError if isinstance(to, str) else TypeError
        raise error(f"to: {to!r:.80}; {', '.join(written)} can be written")
    return key, dialects[key]


def _moves(checkpoint: Checkpoint, dialect: Dialect, dtype: str | None, exact: bool) -> list[Move]:
    absent = checkpoint.family.absent(checkpoint.config)
    moves = []
    for target in dialect.places(checkpoint.sizes, absent):
        source = checkpoint.places[target.name]
        change = _change(checkpoint, source, target, dtype, exact)
        checked = exact and not change.always_exact
        chunk = checkpoint.chunk(source)
        moves.append(Move(source, target, change, checkpoint.sizes, 1, checked, chunk))
    return moves


def _change(
    checkpoint: Checkpoint, source: Place, target: Place, dtype: str | None, exact: bool
) -> Change:
    """Return the change between the factors and dtypes of two places, exact if that is asked."""
    stored = checkpoint.dtype(source)
    wanted, there = checkpoint.scale(target), checkpoint.scale(source)
    if dtype is not None:
        return Change(stored, dtype, wanted, there)
    if wanted == there:
        return Change(stored, stored)
    origin = checkpoint.origin.get(source.tensor)
    usual, factor = (origin, wanted) if origin else (stored, wanted / there)
    return Change(stored, exact_dtype(usual, factor) if exact else usual, wanted, there)


def _widened(checkpoint: Checkpoint, moves: Sequence[Move]) -> dict[str, str]:
    """Return the tensors that end up wider than their origin, with the dtype to return to."""
    found = {}
    for move in moves:
        origin = checkpoint.origin.get(move.source.tensor, move.change.source)
        if move.target.rule.scale and move.change.target != origin:
            found[move.target.tensor] = origin
    return found


def _extent(move: Move) -> tuple[int, ...]:
    """Return the shape of the regions in which a move writes."""
    cuts, *_ = move.target.regions(move.sizes, 0, move.lead)
    return tuple(cut.stop - cut.start for cut in cuts)


def _config(
    checkpoint: Checkpoint, dialect: Dialect, moves: Sequence[Move], widened: Mapping[str, str]
) -> dict[str, Any]:
    stored: dict[str, int] = {}
    for move in moves:
        dtype = widened.get(move.target.tensor, move.change.target)
        stored[dtype] = stored.get(dtype, 0) + move.layout().size
    config = plain_config(checkpoint.config, max(stored, key=lambda dtype: stored[dtype]))
    if dialect.format == "maxtext":
        family = checkpoint.family
        config = with_maxtext(config, checkpoint.sizes, family, dialect.config, origin=widened)
    render_config(config)  # raises now for what JSON cannot hold
    return config
