"""Sharding: which part of an array each rank of a mesh holds; for each rank that is a `Layout`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from xlayout.algebra import Layout, Piece
from xlayout.algebra.merge import merge, progressions
from xlayout.algebra.shapes import Shape, as_shape, boolean
from xlayout.algebra.strided import row_major
from xlayout.errors import AxisError, ShapeError, SizeError
from xlayout.shard.mesh import Mesh, check_axis
from xlayout.shard.split import Runs, Split, Splits, as_splits

__all__ = ["Entry", "Sharding", "Stretches", "part", "stored"]

Entry = str | Sequence[str] | None
"""The mesh axes that cut one array axis: one, several (major to minor), or none."""

Stretches = tuple[tuple[int, int, int], ...]
"""(first position on the whole axis, first position where it is stored, length) of each range."""

_PLAIN = Split()


@dataclass(frozen=True, slots=True, init=False)
class Sharding:
    """Which part of an array each rank holds; it applies to arrays of any shape that it can cut.

    Args:
        mesh: the ranks.
        spec: for each array axis the mesh axes that cut it: a name, several names (major to minor)
            or None. Array axes beyond the spec are not cut, and ranks along a mesh axis that the
            spec does not name hold copies.
        splits: the `Split` of array axes that are cut otherwise than by the rule "ceil"; the name
            of a rule or the sizes of the parts also work.
        flat: cut the array flattened to one axis, as ZeRO-3 stores parameters.

    Raises:
        TypeError: for an invalid mesh, spec or split; for a `flat` that is not a bool.
        AxisError: for a mesh axis that the mesh does not have, or that is used twice.
        SizeError: for a split of an axis that the spec leaves whole.

    >>> tp = Mesh((2, 2), ("dp", "tp"))
    >>> weight = Sharding(tp, ("tp", None))
    >>> weight.local_shape(3, (6, 5))
    (3, 5)
    >>> weight.owned(3, (6, 5))
    ((range(3, 6),), (range(0, 5),))
    >>> print(weight.layout(3, (6, 5)))
    (6, 5) -> (3, 5) {0<-15: (15, 1, 1)}
    """

    mesh: Mesh
    spec: tuple[tuple[str, ...], ...]
    splits: tuple[tuple[int, Split], ...]
    flat: bool

    def __init__(
        self,
        mesh: Mesh,
        spec: Sequence[Entry],
        *,
        splits: Splits | None = None,
        flat: bool = False,
    ) -> None:
        if not isinstance(mesh, Mesh):
            raise TypeError(f"mesh: {mesh!r}; wanted a Mesh")
        boolean(flat, "flat")
        if isinstance(spec, str):
            raise TypeError(f"spec: {spec!r} is a string; wanted one entry for each array axis")
        try:
            given = tuple(spec)
            entries = [(e,) if isinstance(e, str) else () if e is None else tuple(e) for e in given]
        except TypeError:
            raise TypeError(
                f"spec: {spec!r}; wanted for each array axis a mesh axis, several or None"
            ) from None
        if any(isinstance(one, set | frozenset) for one in (spec, *given)):
            raise TypeError(f"spec: {spec!r}; a set has no order: wanted tuples or lists")
        while entries and not entries[-1]:
            entries.pop()
        used = [name for entry in entries for name in entry]
        for name in used:
            check_axis(mesh, name, "spec")
            if used.count(name) > 1:
                raise AxisError(f"spec: mesh axis {name!r} is used twice; it can cut one axis once")
        if flat and len(entries) > 1:
            raise AxisError(f"spec: {entries} for a flat array, which has one axis")
        rules = as_splits(() if splits is None else splits)
        for axis in rules:
            if not 0 <= axis < len(entries) or not entries[axis]:
                raise SizeError(f"splits: axis {axis} is not cut by the spec {tuple(entries)}")
        kept = tuple(sorted((a, s) for a, s in rules.items() if s != _PLAIN))
        for name, value in (
            ("mesh", mesh), ("spec", tuple(entries)), ("splits", kept), ("flat", flat)
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    def split(self, axis: int) -> Split:
        """The rule that cuts an array axis."""
        return dict(self.splits).get(axis, _PLAIN)

    def axes(self, axis: int) -> tuple[int, ...]:
        """The mesh axes that cut an array axis, by position, major to minor."""
        entry = self.spec[axis] if axis < len(self.spec) else ()
        return tuple(self.mesh.axis(name) for name in entry)

    def counts(self, axis: int) -> tuple[int, ...]:
        """Number of ranks along each of these mesh axes."""
        return tuple(self.mesh.shape[a] for a in self.axes(axis))

    @property
    def used(self) -> tuple[str, ...]:
        """The mesh axes that cut some array axis."""
        return tuple(itertools.chain(*self.spec))

    def shape(self, shape: Sequence[int]) -> Shape:
        """The shape that the spec cuts: that of the array, or its one flat axis.

        Raises:
            ShapeError: for an array with fewer axes than the spec has entries.
        """
        shape = as_shape(shape)
        if self.flat:
            return (math.prod(shape),)
        if len(shape) < len(self.spec):
            raise ShapeError(f"shape: {shape} has {len(shape)} axes; the sharding {self} cuts more")
        return shape

    def without(self, *names: str) -> Sharding:
        """The sharding without these mesh axes, along which ranks then hold copies.

        Raises:
            AxisError: for a mesh axis that the mesh does not have.

        >>> print(Sharding(Mesh((2, 4), ("dp", "tp")), [("tp", "dp")]).without("dp"))
        (tp) on dp=2 tp=4
        """
        for name in names:
            check_axis(self.mesh, name, "names")
        spec = [tuple(name for name in entry if name not in names) for entry in self.spec]
        kept = {axis: split for axis, split in self.splits if spec[axis]}
        return Sharding(self.mesh, spec, splits=kept, flat=self.flat and any(spec))

    # -- what a rank holds ------------------------------------------------------------------------

    def owned(self, rank: int, shape: Sequence[int]) -> tuple[Runs, ...]:
        """For each axis the ranges that a rank holds, in the order in which it stores them.

        Raises:
            SizeError: for a rank that the mesh does not have, or an axis that cannot be cut so.
            ShapeError: for an array with fewer axes than the spec has entries.
        """
        at = self.mesh.coordinates(rank)
        return tuple(
            self.runs(k, n, tuple(at[a] for a in self.axes(k)))
            for k, n in enumerate(self.shape(shape))
        )

    def runs(self, axis: int, n: int, place: tuple[int, ...]) -> Runs:
        """The ranges of an axis of `n` elements held at coordinates along the axes that cut it."""
        return self.split(axis).runs(n, self.counts(axis), place, self.axes(axis), axis)

    def local_shape(self, rank: int, shape: Sequence[int]) -> Shape:
        """The shape of the local array of a rank, padding included; raises as `owned`."""
        return tuple(
            _widest(self, k, n) if self.split(k).pad else sum(map(len, runs))
            for k, (n, runs) in enumerate(
                zip(self.shape(shape), self.owned(rank, shape), strict=True)
            )
        )

    def places(self, axis: int) -> Iterator[tuple[int, ...]]:
        """All coordinates along the mesh axes that cut an array axis."""
        return itertools.product(*map(range, self.counts(axis)))

    def layout(self, rank: int, shape: Sequence[int]) -> Layout:
        """The layout from the whole array to the local array of a rank; raises as `owned`."""
        return _layout(self, rank, as_shape(shape))

    # -- to and from the frameworks' shardings ----------------------------------------------------

    @classmethod
    def from_jax(cls, sharding: Any) -> Sharding:
        """The sharding of a jax.sharding.NamedSharding.

        Raises:
            TypeError: for another kind of sharding.
            ValueError: for a spec that leaves an axis to the compiler.

        >>> import jax
        >>> from jax.sharding import PartitionSpec as P
        >>> mesh = jax.sharding.AbstractMesh((2, 4), ("fsdp", "tp"))
        >>> print(Sharding.from_jax(jax.sharding.NamedSharding(mesh, P(("tp", "fsdp")))))
        (tp+fsdp) on fsdp=2 tp=4
        """
        from xlayout.shard import placement  # it imports this file

        return placement.from_jax(sharding)

    def to_jax(self, mesh: Any) -> Any:
        """The NamedSharding on a jax.sharding.Mesh; ranks are positions in it, not device ids.

        Raises:
            ShardingError: for a sharding that JAX cannot express, with the nearest that it can.
            ValueError: for a mesh of another shape or other names.
        """
        from xlayout.shard import placement

        return placement.to_jax(self, mesh)

    @classmethod
    def from_torch(cls, mesh: Any, placements: Sequence[Any], ndim: int) -> Sharding:
        """The sharding of a DeviceMesh and placements, for arrays of `ndim` axes.

        `_StridedShard` is supported: it means another order of the mesh axes (FSDP2 over a
        tensor-parallel weight), or fused segments.

        Raises:
            ValueError: for Partial.
            ShardingError: for a split factor that corresponds to no order of the mesh axes.
        """
        from xlayout.shard import placement

        return placement.from_torch(mesh, placements, ndim)

    def to_torch(self, mesh: Any) -> tuple[Any, ...]:
        """The placements on a DeviceMesh; ranks are positions in it.

        Raises:
            ShardingError: for a sharding that DTensor cannot express, with the nearest that it can.
            ValueError: for a mesh of another shape or other names.
        """
        from xlayout.shard import placement

        return placement.to_torch(self, mesh)

    def __str__(self) -> str:
        entries = ("+".join(entry) or "-" for entry in self.spec)
        rules = "".join(f", axis {axis} by {_describe(split)}" for axis, split in self.splits)
        return f"({', '.join(entries)}{', flat' if self.flat else ''}{rules}) on {self.mesh}"


@lru_cache(4096)
def _widest(sharding: Sharding, axis: int, n: int) -> int:
    return max(sum(map(len, sharding.runs(axis, n, at))) for at in sharding.places(axis))


@lru_cache(1 << 14)
def _layout(sharding: Sharding, rank: int, shape: Shape) -> Layout:
    local = sharding.local_shape(rank, shape)
    owned = [stored(runs) for runs in sharding.owned(rank, shape)]
    pieces = part(owned, sharding.shape(shape), local)
    return Layout._of(((shape,), (local,), merge(pieces)))


def part(owned: Sequence[Stretches], shape: Shape, local: Shape) -> tuple[Piece, ...]:
    """The pieces from an array to a local array of some stretches of each of its axes."""
    along = [merge(_equidistant(stretches)) for stretches in owned]
    found = []
    for chosen in itertools.product(*along):
        loops, i, o = [], 0, 0
        for piece, x, z in zip(chosen, row_major(shape), row_major(local), strict=True):
            i, o = i + piece.in_offset * x, o + piece.out_offset * z
            loops += [(n, a * x, b * z) for n, a, b in piece.loops]
        found.append(Piece(i, o, tuple(loops)))
    return tuple(found)


def _equidistant(stretches: Stretches) -> Iterator[Piece]:
    """Stretches as pieces; equal ones at equal distances become one piece."""
    for i, o, m, loop in progressions(stretches, lambda m, loop: loop[1] >= m):
        yield Piece(i, o, (loop, (m, 1, 1)))


def stored(runs: Runs) -> Stretches:
    """Runs as stretches, stored one after the other."""
    starts = itertools.accumulate(map(len, runs), initial=0)
    return tuple((run.start, at, len(run)) for run, at in zip(runs, starts, strict=False))


def _describe(split: Split) -> str:
    words: list[Any] = [split.rule] if split.sizes is None else [f"sizes {split.sizes}"]
    if isinstance(split.segments, int):
        words.append(f"in {split.segments} segments")
    elif split.segments is not None:
        words.append(f"in segments {split.segments}")
    if split.unit != 1:
        words.append(f"in units of {split.unit}")
    if split.overlaps:
        words.append(f"with {split.copies} copies")
    if split.pad:
        words.append("padded")
    return " ".join(words)
