"""Random meshes and shardings, and what a rank holds, expressed in index arrays alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.strategies import stretches
from xlayout.algebra import Layout
from xlayout.errors import SizeError
from xlayout.shard import Mesh, Plan, Sharding, Split, plan_reshard

MESHES = (
    Mesh(1, "a"), Mesh(2, "a"), Mesh(3, "a"), Mesh(4, "a"), Mesh((2, 2), ("a", "b")),
    Mesh((2, 3), ("a", "b")), Mesh((4, 2), ("a", "b")), Mesh((2, 2, 2), ("a", "b", "c")),
    Mesh((1, 2), ("a", "b")), Mesh((2, 1, 2), ("a", "b", "c")),
)  # fmt: skip


@st.composite
def splits(draw: DrawFn, n: int, ranks: int) -> Split:
    """Any rule that can cut an axis of `n` among this many ranks."""
    pad = draw(st.booleans())
    units = st.sampled_from([1, 1, 2, 3])
    if draw(st.integers(0, 5)) == 0:
        cuts = sorted(draw(st.lists(st.integers(0, n), min_size=ranks - 1, max_size=ranks - 1)))
        sizes = tuple(b - a for a, b in zip([0, *cuts], [*cuts, n], strict=True))
        return Split(sizes=sizes, pad=pad)
    rule = draw(st.sampled_from(["ceil", "flat_ceil", "balanced"]))
    fused = [st.integers(1, 3), *([stretches(n, most=3).map(tuple)] if n else [])]
    segments = draw(st.one_of(st.none(), *fused))
    several = len(segments) if isinstance(segments, tuple) else 0
    unit = draw(st.one_of(units, *([st.tuples(*[units] * several)] if several else [])))
    groups = st.sampled_from([d for d in range(1, ranks + 1) if ranks % d == 0])
    copies = draw(st.one_of(st.just(1), groups, *([st.tuples(*[groups] * several)]
                                                  if several else [])))  # fmt: skip
    return Split(rule=rule, unit=unit, segments=segments, copies=copies, pad=pad)


@st.composite
def shardings(draw: DrawFn, mesh: Mesh, shape: Sequence[int]) -> Sharding:
    """Any sharding of an array: even, uneven, fused, partly or fully replicated, or flat."""
    flat = draw(st.integers(0, 7)) == 0
    axes = [math.prod(shape)] if flat else list(shape)
    spec: list[list[str]] = [[] for _ in axes]
    for name in draw(st.permutations(mesh.names)) if axes else ():
        place = draw(st.integers(-1, len(axes) - 1))
        if place >= 0:
            spec[place].append(name)
    rules = {}
    for k, names in enumerate(spec):
        if names and draw(st.booleans()):
            ranks = math.prod(mesh.shape[mesh.axis(name)] for name in names)
            rules[k] = draw(splits(axes[k], ranks))
    return Sharding(mesh, spec, splits=rules, flat=flat)


def positions(sharding: Sharding, rank: int, shape: Sequence[int]) -> np.ndarray:
    """The flat positions of the array that a rank stores, -1 for padding, in its local shape."""
    whole = np.arange(math.prod(shape)).reshape(sharding.shape(shape))
    owned = sharding.owned(rank, shape)
    chosen = whole[np.ix_(*(np.concatenate([np.arange(0), *runs]).astype(int) for runs in owned))]
    local = np.full(sharding.local_shape(rank, shape), -1)
    local[tuple(map(slice, chosen.shape))] = chosen
    return local


def needs(layout: Layout, array: np.ndarray) -> np.ndarray:
    """The input position of each output position, -1 for holes."""
    index = layout.index()
    return np.where(array < 0, -1, index[np.maximum(array, 0)]) if index.size else array


def bound(layout: Layout, src: Sharding, dst: Sharding) -> Iterator[int]:
    """Per rank, the input elements it needs afterwards and does not hold before."""
    for rank in range(src.mesh.size):
        wanted = set(needs(layout, positions(dst, rank, layout.out_shape)).ravel().tolist()) - {-1}
        yield len(wanted - set(positions(src, rank, layout.in_shape).ravel().tolist()))


def check_pullback(plan: Plan) -> None:
    """From where a plan's results pull back to, if that is a sharding, nothing is sent."""
    try:
        source = plan.pullback()
    except SizeError:
        return
    assert plan_reshard(plan.layout, source, plan.dst).is_local
