"""The plan of a port: how every tensor is moved, from headers alone, before a byte moves.

Beyond headers it reads only samples of tensors that might lose values, because how many are lost
depends on the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from xlayout.algebra.shapes import boolean
from xlayout.errors import PortError
from xlayout.port.change import Change, exact_dtype
from xlayout.port.checkpoint import Checkpoint, open_checkpoint
from xlayout.port.companions import find_companions, find_strays
from xlayout.port.configs import with_dtype, with_maxtext
from xlayout.port.family import Dialect, Family
from xlayout.port.fit import fit_port
from xlayout.port.formats import TensorSpec
from xlayout.port.formats.config import render_config
from xlayout.port.formats.file_names import given_path
from xlayout.port.formats.foreseen import why_refused
from xlayout.port.lanes import lanes_for
from xlayout.port.losses import measure, roomier
from xlayout.port.move import Move
from xlayout.port.places import Place
from xlayout.port.ranks import aligned, held_by
from xlayout.port.refusals import (
    output_path,
    refuse_dtype,
    refuse_mesh,
    refuse_mixed_stacks,
    refuse_place,
)
from xlayout.port.units import parse_bytes
from xlayout.port.value import PortPlan
from xlayout.shard import Mesh

__all__ = ["plan", "plan_open"]


def plan(
    src: str | PathLike[str],
    dst: str | PathLike[str],
    *,
    to: str,
    family: str | Family | None = None,
    dtype: str | None = None,
    mesh: Mesh | None = None,
    max_ram: int | str = "512MiB",
    exact: bool = True,
) -> PortPlan:
    """Plan a port: names, layouts, dtypes, bytes, memory, and what would be lost.

    Args:
        src: A checkpoint: safetensors file or directory, GGUF file, Orbax or DCP directory.
        dst: Where the new checkpoint will appear: absent, or an empty directory. If something is
            there, its folder cannot be written to, or the disk has too little room, the plan says
            that a run is refused.
        to: The names and layouts to write: "hf", "dcp", "maxtext", …; `families()` lists them.
            "safetensors" means "hf".
        family: The rules to follow: a `Family`, or the name of one that `families()` lists; None
            goes by the config's `architectures`.
        dtype: The dtype to write; None keeps each tensor's own.
        mesh: The ranks that will load a DCP or an Orbax tree: tensors are cut into the parts that
            they hold, and each rank reads its own alone, instead of all. Along an axis "tp" ranks
            share heads, features of MLPs and the vocabulary, along "fsdp" the rest: in a DCP its
            first axis, in MaxText's tree the model's width. None stores tensors for one reader.
        max_ram: The most memory that tensor data may take, in bytes or as "512MiB". A chunk of an
            Orbax tree that must be read whole to get a part of it counts twice: stored and decoded.
        exact: Refuse to lose anything: tensors whose values are scaled are stored wide enough to
            come back bit for bit (NaN as NaN). False rounds them, and the plan says how many
            elements change.

    Raises:
        FormatError: The source is broken, or tensorstore cannot be told where to write.
        PortError: Names or shapes do not match the rules, a buffer does not fit in `max_ram`, the
            values would not come back although `exact` is asked for, the ranks of `mesh` cannot
            share the heads, or an argument makes no sense.
        TypeError: `exact` is neither True nor False, or another argument has a wrong type.

    >>> from xlayout.port.demo.weights import make_tiny
    >>> gguf = make_tiny()  # a Llama of two layers, in a temporary folder
    >>> move = plan(gguf, gguf.with_name("hf"), to="hf").moves[3]
    >>> print(move.source.tensor, "→", move.target.tensor, ":", move.layout())
    blk.0.attn_q.weight → model.layers.0.self_attn.q_proj.weight : (a=6 b=32 c=2) d=96 -> (a c b) d
    """
    boolean(exact, "exact")
    budget, where = parse_bytes(max_ram), output_path(dst)
    with open_checkpoint(given_path(src, "src"), family=family) as checkpoint:
        return plan_open(
            checkpoint, where, to=to, dtype=dtype, mesh=mesh, max_ram=budget, exact=exact
        )


def plan_open(
    checkpoint: Checkpoint,
    dst: Path,
    /,
    *,
    to: str,
    dtype: str | None,
    mesh: Mesh | None,
    max_ram: int,
    exact: bool,
) -> PortPlan:
    """Plan the port of a checkpoint that is open; see `plan`."""
    key, dialect = _dialect(checkpoint, to)
    refuse_place(dst, to, dialect.format)
    refuse_mesh(mesh, key, _writable(checkpoint))
    companions = find_companions(checkpoint.source)
    single = dst.suffix == ".safetensors"
    refuse_dtype(dtype)
    moves = _moves(checkpoint, dialect, dtype, exact)
    places = [move.target for move in moves]
    jax = dialect.format == "maxtext"
    # A DCP is stored in boxes also for a single rank: each layer or expert of a stack is one.
    boxed = mesh is not None or dialect.format == "dcp"
    held = held_by(mesh, places, checkpoint.sizes, jax=jax) if boxed else {}
    moves = fit_port(moves, max_ram)
    # Measuring reads data, in chunks that are known to fit by now.
    losses = measure(checkpoint.source, moves)
    if exact and any(loss.lost for loss in losses):
        moves = fit_port(roomier(moves, losses, dtype), max_ram)
    refuse_mixed_stacks(moves)
    chunks = {move.target.tensor: _extent(move) for move in reversed(moves)}
    if jax:
        chunks |= {name: aligned(chunks[name], ranks) for name, ranks in held.items()}
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
        chunks=chunks,
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
        extras={} if single else dict(dialect.files),
        unplaced=("config.json", *companions, *dialect.files) if single else (),
        taken=why_refused(dst, sum(spec.nbytes for spec in specs.values()), single=single),
        mesh=mesh,
        held=held,
    )


def _dialect(checkpoint: Checkpoint, to: Any) -> tuple[str, Dialect]:
    key: str = "hf" if to == "safetensors" else to
    written = _writable(checkpoint)
    if not isinstance(to, str) or key not in written:
        error = PortError if isinstance(to, str) else TypeError
        raise error(f"to: {to!r:.80}; {', '.join(written)} can be written")
    return key, checkpoint.family.dialects[key]


def _writable(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the dialects that can be written, each with its format."""
    dialects = checkpoint.family.dialects.items()
    return {name: dialect.format for name, dialect in dialects if dialect.format != "gguf"}


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
        if move.change.target != origin:
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
    config = with_dtype(checkpoint.config, max(stored, key=lambda dtype: stored[dtype]))
    if dialect.format == "maxtext":
        family = checkpoint.family
        config = with_maxtext(config, checkpoint.sizes, family, dialect.config, origin=widened)
    render_config(config)  # raises now for what JSON cannot hold
    return config
