"""Pullback: the source sharding from which every rank would already have what it needs."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence

from xlayout.algebra import Layout, Piece
from xlayout.algebra.boxes import Box, Run, boxes
from xlayout.algebra.compose import restrict
from xlayout.algebra.shapes import Shape, bounds, divisors, in_short
from xlayout.algebra.strided import row_major
from xlayout.errors import SizeError
from xlayout.shard.mesh import Mesh
from xlayout.shard.owners import local_shapes
from xlayout.shard.sharding import Sharding
from xlayout.shard.split import Runs, Split, merged

__all__ = ["pull", "witnesses"]

_MOST = 1 << 16  # ranges; with more, no split that anyone would write describes them


def pull(
    layout: Layout, dst: tuple[Sharding, ...], needs: Mapping[int, tuple[Piece, ...]]
) -> tuple[Sharding, ...]:
    """One sharding per input, from the pieces that some ranks need.

    Raises:
        SizeError: if no sharding provides them, naming the cut at fault and the clean cuts.
    """
    mesh = dst[0].mesh
    sizes = {r: sum(math.prod(s) for s in local_shapes(dst, layout.out_shapes, r)) for r in needs}
    found = []
    for shape, stretch in zip(layout.in_shapes, bounds(layout.in_shapes), strict=True):
        spec: list[tuple[str, ...]] = []
        splits: dict[int, Split] = {}
        wanted = {r: _along(restrict(n, stretch), shape, sizes[r]) for r, n in needs.items()}
        for axis, n in enumerate(shape):
            used = {name for entry in spec for name in entry}
            cut = _recognise(mesh, {r: w[axis] if w else () for r, w in wanted.items()}, n, used)
            if cut is None or None in wanted.values() or used & {*cut[0]}:
                raise SizeError(_why(layout, dst))
            spec.append(cut[0])
            if cut[1] != Split():
                splits[axis] = cut[1]
        found.append(Sharding(mesh, spec, splits=splits))
    return tuple(found)


def witnesses(mesh: Mesh) -> list[int]:
    """A few ranks that reveal how a sharding cuts: the first, its neighbours, and the last."""
    found = {0, mesh.size - 1}
    for step, n in zip(row_major(mesh.shape), mesh.shape, strict=True):
        found |= {k * step for k in (1, n - 1) if k < n}
    return sorted(found)


def _along(pieces: tuple[Piece, ...], shape: Shape, size: int) -> list[Runs] | None:
    """The ranges that pieces read along each axis, or None if one of their loops crosses axes."""
    found = boxes(0, pieces, shape, (size,))
    if found is None:
        return None
    for axis in range(len(shape)):
        apart = sum(math.prod(r.n for r in b.on_input(axis) if r.in_step > 1) for b in found)
        if apart > _MOST:
            raise SizeError(
                f"pullback: a rank needs {apart} stretches of axis {axis} = {shape[axis]}, no more "
                f"than {_MOST} are looked at; leave the source whole, or let it communicate"
            )
    return [_union(run for box in found for run in _positions(box, a)) for a in range(len(shape))]


def _positions(box: Box, axis: int) -> list[range]:
    runs = box.on_input(axis)
    width = 1
    if runs and runs[-1].in_step == 1:
        width = runs.pop().n
    starts = [box.starts[axis]]
    for run in runs:
        starts = [start + k * run.in_step for start in starts for k in range(run.n)]
    return [range(start, start + width) for start in starts]


def _union(runs: Iterator[range]) -> Runs:
    done = 0
    kept = []
    for run in sorted(runs, key=lambda r: (r.start, r.stop)):
        kept.append(range(max(done, run.start), max(done, run.stop)))
        done = max(done, run.stop)
    return merged(run for run in kept if run)


def _recognise(
    mesh: Mesh, wanted: Mapping[int, Runs], n: int, used: Collection[str]
) -> tuple[tuple[str, ...], Split] | None:
    """Mesh axes and a split under which every rank holds the ranges of an axis that it wants."""
    holders = {rank: runs for rank, runs in wanted.items() if runs}
    found = _cut_by(mesh, wanted, n, _differing(mesh, holders))
    if found is None or found[0] or len(holders) == len(wanted):
        return found
    # All ranks with elements want the same ones: the axis may be too short to fill more parts.
    free = [axis for axis in _differing(mesh, wanted) if mesh.names[axis] not in used]
    return _cut_by(mesh, wanted, n, free) or found


def _differing(mesh: Mesh, wanted: Mapping[int, Runs]) -> list[int]:
    """The mesh axes along which neighbours want different runs."""
    at = {rank: mesh.coordinates(rank) for rank in wanted}
    return [
        axis
        for axis in range(len(mesh.shape))
        if any(
            wanted[r] != wanted[s]
            for r, s in itertools.combinations(wanted, 2)
            if all((at[r][k] == at[s][k]) != (k == axis) for k in range(len(mesh.shape)))
        )
    ]


def _cut_by(
    mesh: Mesh, wanted: Mapping[int, Runs], n: int, matter: Sequence[int]
) -> tuple[tuple[str, ...], Split] | None:
    """The same with these mesh axes, in some order."""
    at = {rank: mesh.coordinates(rank) for rank in wanted}
    for order in itertools.permutations(matter):
        counts = tuple(mesh.shape[a] for a in order)
        for split in _candidates(wanted.values(), n):
            if all(
                _inside(runs, split.runs(n, counts, [at[r][a] for a in order], order))
                for r, runs in wanted.items()
            ):
                return tuple(mesh.names[a] for a in order), split
    return None


def _candidates(wanted: Collection[Runs], n: int) -> Iterator[Split]:
    for segments in (None, _segments(wanted, n)):
        yield Split(segments=segments)
        yield Split(rule="balanced", segments=segments)


def _segments(wanted: Collection[Runs], n: int) -> int | tuple[int, ...]:
    """Segment sizes, from the starts of the ranges of the rank that comes first."""
    first = min((runs for runs in wanted if runs), key=lambda runs: runs[0].start, default=())
    starts = [0, *(run.start for run in first[1:]), n]
    sizes = tuple(b - a for a, b in itertools.pairwise(starts))
    if len(set(sizes)) == 1:
        return len(sizes)
    return sizes


def _inside(wanted: Runs, held: Runs) -> bool:
    """Whether each range wanted is within one that is held; both are in ascending order."""
    starts = [h.start for h in held]
    last = (bisect_right(starts, w.start) - 1 for w in wanted)
    return all(k >= 0 and w.stop <= held[k].stop for k, w in zip(last, wanted, strict=True))


def _why(layout: Layout, dst: tuple[Sharding, ...]) -> str:
    """An error text, about the first cut of a result that falls inside a factor of the layout."""
    for sharding, part in zip(dst, layout.each(), strict=True):
        shape = sharding.shape(part.out_shape)
        for box in boxes(0, part.pieces, (layout.in_size,), shape) or ():
            for axis, cut in _cuts(sharding, shape):
                runs, within = box.on_output(axis), cut - box.offsets[axis]
                inside = [r.out_step for r in runs if within > 0 and within % r.out_step]
                if inside:
                    return _cut_error(sharding, shape[axis], axis, cut, inside[0], runs)
    return (
        f"pullback: no sharding of {layout.in_shapes} gives every rank what it needs for "
        f"{', '.join(map(str, dst))}; leave the source whole, or let it communicate"
    )


def _cuts(sharding: Sharding, shape: Shape) -> Iterator[tuple[int, int]]:
    """The (axis, position) of every cut of a sharding."""
    for rank in range(sharding.mesh.size):
        for axis, runs in enumerate(sharding.owned(rank, shape)):
            yield from ((axis, run.start) for run in runs)


def _cut_error(
    sharding: Sharding, n: int, axis: int, cut: int, step: int, runs: Sequence[Run]
) -> str:
    parts = math.prod(sharding.counts(axis))
    steps = {r.out_step for r in runs}
    clean = [p for p in divisors(n) if all((n // p) % s == 0 or s % (n // p) == 0 for s in steps)]
    return (
        f"cannot shard axis {axis} = {n} into {parts}: the cut at {cut} falls inside a factor of "
        f"{step} (of {' x '.join(str(r.n) for r in runs)}). "
        f"Clean cuts: {in_short(clean)}; anything else must communicate"
    )
