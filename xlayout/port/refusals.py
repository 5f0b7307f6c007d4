"""Arguments that no port can satisfy, refused before a byte moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlayout.algebra.shapes import a_type
from xlayout.errors import PortError
from xlayout.port.change import FLOATS
from xlayout.port.formats.base import DTYPES, numpy_dtype
from xlayout.port.formats.file_names import given_path
from xlayout.port.formats.orbax_tree import refuse_path
from xlayout.port.ranks import AXES, MOST
from xlayout.shard import Mesh

if TYPE_CHECKING:
    from xlayout.port.move import Move

__all__ = [
    "output_path",
    "refuse_dtype",
    "refuse_mesh",
    "refuse_mixed_stacks",
    "refuse_place",
]


def refuse_dtype(dtype: Any, /) -> None:
    """Refuse to write a dtype that does not exist; None is every tensor's own.

    Raises:
        PortError: There is no dtype of this name.
        TypeError: It is not a name.
    """
    if dtype is None:
        return
    if not isinstance(dtype, str) or dtype not in DTYPES:
        error = PortError if isinstance(dtype, str) else TypeError
        raise error(f"dtype: {dtype!r:.80}; {', '.join(FLOATS)} can be written")
    numpy_dtype(dtype)  # raises if a library it needs is not installed


def refuse_mesh(mesh: Any, to: str, formats: Mapping[str, str], /) -> None:
    """Refuse ranks that are none, or for which a format need not be cut.

    Args:
        mesh: What was given; None is fine.
        to: The names and layouts to write.
        formats: The format of each that could be written.

    Raises:
        PortError: The format is read in any parts, an axis of the mesh has no meaning, or it has
            more ranks than there could be parts.
        TypeError: It is no mesh.
    """
    if mesh is None:
        return
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh: {a_type(mesh)}; wanted an xlayout.Mesh, or None")
    for axis in mesh.names:
        if axis not in AXES:
            raise PortError(
                f"mesh: axis {axis!r}; wanted {' and '.join(map(repr, AXES))} alone, as ranks "
                "along any other axis load the same files"
            )
    if mesh.size > MOST:
        raise PortError(f"mesh: {mesh}; {mesh.size:,} ranks; wanted at most {MOST:,}")
    if formats[to] == "safetensors":
        others = ", ".join(name for name, of in formats.items() if of != "safetensors")
        raise PortError(
            f"mesh: {mesh}; {to!r} stores tensors of which ranks of any mesh can read their parts, "
            f"so leave it out; cut for ranks are {others}"
        )


def output_path(dst: str | PathLike[str], /) -> Path:
    """Return the path of an output.

    Raises:
        PortError: It is empty, which a `Path` would take for the current directory.
        TypeError: It is no path.
    """
    return given_path(dst, "dst", wanted="where the output will appear: absent, or an empty folder")


def refuse_place(dst: Path, to: str, format: str, /) -> None:  # noqa: A002
    """Refuse a place that cannot take what would be written there.

    Raises:
        PortError: It is named like a safetensors file, but would be a directory.
        FormatError: tensorstore, which would write there, cannot be given the path.
    """
    if dst.suffix == ".safetensors" and format != "safetensors":
        raise PortError(
            f"{dst}: to={to!r} writes a directory; wanted a name that does not end in .safetensors"
        )
    if format == "maxtext":
        refuse_path(dst)


def refuse_mixed_stacks(moves: Sequence[Move], /) -> None:
    """Refuse layers, experts or parts of different dtypes that would become one tensor."""
    dtypes: dict[str, str] = {}
    for move in moves:
        first = dtypes.setdefault(move.target.tensor, move.change.target)
        if move.change.target != first:
            rule = move.target.rule
            stacked = " and ".join(f"{each}s" for each in rule.stacked)
            what, whole = ("parts", "tensor") if rule.part else (stacked, "stack")
            raise PortError(
                f"{move.target.tensor}: its {what} are {first} and {move.change.target}; a {whole} "
                "has one dtype, so name it with dtype= (--dtype)"
            )
