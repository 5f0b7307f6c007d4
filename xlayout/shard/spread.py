"""Spread: a sharding as one relation, from the whole array to what all ranks store.

The address of an element on a rank is `rank * step + local address`, with a step so large that
ranks do not overlap. If axes are cut evenly, this is a handful of pieces for any number of ranks:
some of their loops run over ranks, the others over elements.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

from xlayout.algebra import Piece
from xlayout.algebra.merge import progressions
from xlayout.algebra.piece import Loop
from xlayout.algebra.shapes import Shape
from xlayout.algebra.strided import row_major
from xlayout.shard.mesh import Mesh
from xlayout.shard.sharding import Sharding, stored
from xlayout.shard.split import per_segment

__all__ = ["Owners", "equal_segments", "has_owners", "places_in", "spread"]

Owners = tuple[tuple[int, int], ...]
"""((mesh axis, size of a group), ...): ranks that differ within a group of neighbours along a mesh
axis hold the same."""

_Loops = tuple[tuple[int, int, int, int], ...]
"""((n, position step, rank step, storage step), ...)"""

_Form = tuple[int, _Loops]
"""(stored at, loops): what strands have in common that differ only in position and rank."""

Strand = tuple[int, int, int, _Loops]
"""(position on the axis, rank, stored at, loops): ranges of one axis, and who stores them where."""

Along = dict[int, list[tuple[Strand, int]]]
"""{elements of an axis that a rank stores: [(strand, how many neighbours hold it), ...]}."""


@lru_cache(1024)
def spread(
    sharding: Sharding, shape: Shape, step: int, *, copies: bool = True
) -> dict[Owners, tuple[Piece, ...]]:
    """The pieces from an array to where each rank stores its part, by the ranks that share it.

    Args:
        sharding: the sharding.
        shape: the shape of the array.
        step: distance between the addresses of two ranks; at least four times the array's size.
        copies: whether to include all ranks that hold the same, or only the first of them, which
            requires `has_owners`.
    """
    mesh = sharding.mesh
    whole, steps = sharding.shape(shape), row_major(mesh.shape)
    used = sharding.used
    unnamed = tuple((a, n) for a, n in enumerate(mesh.shape) if mesh.names[a] not in used)
    along = [_along(sharding, axis, n) for axis, n in enumerate(whole)]
    found: dict[Owners, list[Piece]] = defaultdict(list)
    for lengths in itertools.product(*along):
        strides = tuple(zip(row_major(whole), row_major(lengths), strict=True))
        for strands in itertools.product(*(a[m] for a, m in zip(along, lengths, strict=True))):
            groups = ((sharding.axes(k)[-1], g) for k, (_, g) in enumerate(strands) if g > 1)
            owners = (*unnamed, *groups)
            i = o = 0
            loops = [(n, 0, steps[a] * step) for a, n in owners if copies]
            for ((position, rank, at, own), _), (x, z) in zip(strands, strides, strict=True):
                i, o = i + position * x, o + rank * step + at * z
                loops += [(n, p * x, r * step + s * z) for n, p, r, s in own]
            found[owners].append(Piece(i, o, tuple(loops)))
    return {owners: tuple(pieces) for owners, pieces in found.items()}


def has_owners(sharding: Sharding, shape: Shape) -> bool:
    """Whether copies are held by whole groups of neighbours, at the same local address."""
    return all(
        not sharding.split(axis).overlaps or equal_segments(sharding, axis, n) is not None
        for axis, n in enumerate(sharding.shape(shape))
    )


def places_in(mesh: Mesh, owners: Owners) -> list[int]:
    """For each rank, its distance from the first rank that holds the same."""
    steps = [(row_major(mesh.shape)[a], g) for a, g in owners]
    return [sum(rank // step % g * step for step, g in steps) for rank in range(mesh.size)]


def _along(sharding: Sharding, axis: int, n: int) -> Along:
    """The strands of one axis, by how much of it a rank stores: one length if it is cut evenly."""
    counts, across = sharding.counts(axis), row_major(sharding.mesh.shape)
    steps = tuple(across[a] for a in sharding.axes(axis))
    segments = equal_segments(sharding, axis, n)
    if segments is not None:
        parts = [size * g // math.prod(counts) for size, g in segments]
        return {sum(parts): list(_strands(segments, parts, counts, steps))}
    found: dict[int, list[Strand]] = defaultdict(list)
    for place in sharding.places(axis):
        rank = sum(k * step for k, step in zip(place, steps, strict=True))
        stretches = stored(sharding.runs(axis, n, place))
        length = sum(m for _, _, m in stretches)
        found[length] += [(start, rank, at, ((m, 1, 0, 1),)) for start, at, m in stretches]
    if sharding.split(axis).pad:
        found = {max(found): [strand for strands in found.values() for strand in strands]}
    return {length: [(s, 1) for s in _joined(strands, steps)] for length, strands in found.items()}


def equal_segments(sharding: Sharding, axis: int, n: int) -> list[tuple[int, int]] | None:
    """(size, how many neighbours share a part) of each segment, if all parts are equal."""
    split = sharding.split(axis)
    counts = sharding.counts(axis)
    segments = split.segments or 1
    sizes = (n // segments,) * segments if isinstance(segments, int) else segments
    groups, units = (per_segment(given, len(sizes)) for given in (split.copies, split.unit))
    if split.sizes is not None or sum(sizes) != n or not n:
        return None
    for size, g, unit in zip(sizes, groups, units, strict=True):
        if g > 1 and (not counts or counts[-1] % g):
            return None
        if size % (math.prod(counts) * unit // g):
            return None
    return list(zip(sizes, groups, strict=True))


def _strands(
    segments: Sequence[tuple[int, int]],
    parts: Sequence[int],
    counts: Sequence[int],
    steps: Sequence[int],
) -> Iterator[tuple[Strand, int]]:
    """The strands of an axis that is cut evenly: one for each run of equal segments."""
    position = at = 0
    for (size, g, part), alike in itertools.groupby(
        (size, g, part) for (size, g), part in zip(segments, parts, strict=True)
    ):
        n = len(list(alike))
        groups = (*counts[:-1], counts[-1] // g) if counts else ()
        widths = (width * part for width in row_major(groups))
        apart = (*steps[:-1], steps[-1] * g) if steps else ()
        loops = [(n, w, step, 0) for n, w, step in zip(groups, widths, apart, strict=True)]
        yield (position, 0, at, ((n, size, 0, part), *loops, (part, 1, 0, 1))), g
        position, at = position + n * size, at + n * part


def _joined(strands: Sequence[Strand], steps: Sequence[int]) -> list[Strand]:
    """Equal strands at equal distances joined into loops, which ascend on both sides.

    Not two that are alike by chance: as one piece they would span all that lies between.
    """
    by_form: dict[_Form, list[tuple[int, int, _Form]]] = defaultdict(list)
    for position, rank, at, loops in strands:
        by_form[at, loops].append((position, rank, (at, loops)))

    def fits(_: _Form, to: Loop) -> bool:
        return min(to) > 0 and (to[0] > 2 or to[2] == steps[-1])

    return [
        (position, rank, at, ((n, p, r, 0), *loops))
        for group in by_form.values()
        for position, rank, (at, loops), (n, p, r) in progressions(group, fits)
    ]
