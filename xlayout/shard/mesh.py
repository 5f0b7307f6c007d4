"""Mesh: a grid of ranks with named axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xlayout.algebra.shapes import as_shape, integer
from xlayout.errors import AxisError, SizeError

__all__ = ["Mesh", "check_axis"]


@dataclass(frozen=True, slots=True)
class Mesh:
    """A grid of ranks with named axes. A rank is its row-major position, not a device id.

    Args:
        shape: ranks along each axis.
        names: one name for each axis.

    Raises:
        TypeError: for an invalid shape or invalid names.
        SizeError: if the number of names differs from that of axes, a name is repeated, or an axis
            has no ranks.

    >>> mesh = Mesh((2, 4), ("dp", "tp"))
    >>> mesh.size, mesh.coordinates(6)
    (8, (1, 2))
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]

    def __init__(self, shape: Sequence[int] | int, names: Sequence[str] | str) -> None:
        sizes = as_shape(shape)
        try:
            given = (names,) if isinstance(names, str) else tuple(names)
        except TypeError:
            raise TypeError(f"names: {names!r}; wanted one str for each axis") from None
        if isinstance(names, set | frozenset):
            raise TypeError(f"names: {names!r}; a set has no order: wanted a tuple or list")
        if not all(isinstance(name, str) for name in given):
            raise TypeError(f"names: {given}; wanted one str for each axis")
        if len(given) != len(sizes) or len(set(given)) != len(given):
            raise SizeError(
                f"names: {given}; wanted {len(sizes)} different names, one for each axis of {sizes}"
            )
        if 0 in sizes:
            raise SizeError(f"shape: {sizes} has no ranks; every axis needs at least 1")
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "names", given)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return math.prod(self.shape)

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """The position of a rank along each axis.

        Raises:
            SizeError: for a rank that the mesh does not have.
            TypeError: for a rank that is not an int.
        """
        rank = integer(rank, "rank", None)
        if not 0 <= rank < self.size:
            raise SizeError(f"rank: {rank}; the mesh ({self}) has ranks 0 to {self.size - 1}")
        found = []
        for n in reversed(self.shape):
            rank, at = divmod(rank, n)
            found.append(at)
        return tuple(reversed(found))

    def axis(self, name: str) -> int:
        """The position of a named axis.

        Raises:
            AxisError: for a name that the mesh does not have.
        """
        check_axis(self, name, "name")
        return self.names.index(name)

    def __str__(self) -> str:
        return " ".join(f"{name}={n}" for name, n in zip(self.names, self.shape, strict=True))


def check_axis(mesh: Mesh, axis: object, name: str) -> None:
    """Refuse a mesh axis that does not exist; `name` is the argument that gave it.

    Raises:
        AxisError: with the axes that exist.
    """
    if axis not in mesh.names:
        raise AxisError(f"{name}: {axis!r}; the mesh ({mesh}) has {', '.join(mesh.names)}")
