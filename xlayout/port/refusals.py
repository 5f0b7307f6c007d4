"""What makes no port at all, whatever the values are: refused before a byte moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlayout.errors import PortError
from xlayout.port.change import FLOATS
from xlayout.port.formats.base import DTYPES, numpy_dtype
from xlayout.port.formats.orbax_tree import refuse_path

if TYPE_CHECKING:
    from xlayout.port.move import Move

__all__ = [
    "refuse_dtype",
    "refuse_mesh",
    "refuse_mixed_stacks",
    "refuse_place",
    "refuse_unless_bool",
]


def refuse_unless_bool(**options: object) -> None:
    """Refuse what is neither yes nor no: a text that says "no" is true.

    Raises:
        TypeError: One of the options is no bool.
    """
    for name, value in options.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name}: {value!r:.80}; wanted True or False")


def refuse_dtype(dtype: Any, /) -> None:
    """Refuse to write a dtype that there is not; None is every tensor's own.

    Raises:
        PortError: There is none of this name.
        TypeError: It is no name.
    """
    if dtype is None:
        return
    if not isinstance(dtype, str) or dtype not in DTYPES:
        error = PortError if isinstance(dtype, str) else TypeError
        raise error(f"dtype: {dtype!r:.80}; {', '.join(FLOATS)} can be written")
    numpy_dtype(dtype)  # which says what is not installed


def refuse_mesh(mesh: object) -> None:
    """Say that a port is one checkpoint for all ranks."""
    if mesh is not None:
        raise PortError(
            f"mesh: {mesh!r}; wanted None: a port is one checkpoint for all ranks, and whoever "
            "reads it takes its part (xlayout.Sharding tells which)"
        )


def refuse_place(dst: Path, to: str, format: str, /) -> None:  # noqa: A002
    """Refuse a place that cannot take what would be written there.

    Raises:
        PortError: It has the name of a safetensors file, and would be a directory.
        FormatError: tensorstore, which would write there, cannot be told the path.
    """
    if dst.suffix == ".safetensors" and format != "safetensors":
        raise PortError(
            f"{dst}: to={to!r} writes a directory; wanted a name that does not end in .safetensors"
        )
    if format == "maxtext":
        refuse_path(dst)


def refuse_mixed_stacks(moves: Sequence[Move], /) -> None:
    """Refuse layers, experts or parts of several dtypes that would become one tensor."""
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
