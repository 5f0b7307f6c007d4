"""Ranks: which part of each tensor every rank of a mesh holds.

A rule's pattern names the axes of its tensor, and so what the ranks of tensor parallelism share:
heads, features of an MLP, the vocabulary. FSDP cuts what such a rank has: in torch along the first
axis, in MaxText along the one of the model's width.

In torch's files each layer or expert of a stack is a box of its own: Megatron-core loads them one
by one, and torch reads the whole chunk for each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from xlayout.errors import PortError, ShardingError, SizeError
from xlayout.port.formats.base import Bounds
from xlayout.port.formats.boxes import extent
from xlayout.port.places import Place
from xlayout.port.rules import Part, Rule, Sizes
from xlayout.shard import Mesh, Split
from xlayout.shard.split import runs_between
from xlayout.tp.features import split_of
from xlayout.tp.numbers import Numbers

__all__ = ["AXES", "MOST", "Held", "aligned", "held_by", "shares_of"]

AXES = ("fsdp", "tp")
"""The axes that a mesh may have."""

MOST = 1_000_000
"""Ranks, and boxes of all tensors; the metadata of so many takes half a gigabyte to make."""

_SHARED = {"heads": "heads", "kv": "kv_heads", "mlp": "plain", "vocab": "plain"}
"""The factors of axes that ranks share, each as `split_of` calls its features."""

Held: TypeAlias = tuple[tuple[Bounds, ...], ...]
"""For each rank the boxes of a tensor that it holds."""


def held_by(
    mesh: Mesh | None, places: Iterable[Place], sizes: Sizes, /, *, jax: bool
) -> dict[str, Held]:
    """Return what each rank of a mesh holds of every tensor.

    Args:
        mesh: The ranks; None for a single one.
        places: Where all canonical tensors live.
        sizes: The model's sizes.
        jax: Whether the ranks are JAX's, which cuts evenly, and has FSDP along `embed`.

    Raises:
        PortError: So many ranks cannot share the heads, or not evenly and without copies although
            JAX has to, or their boxes are too many.

    >>> place = Place(Rule("q_proj", "q_proj", "(heads dim) embed"))
    >>> mesh, sizes = Mesh((2, 2), ("fsdp", "tp")), {"heads": 4, "kv": 2, "dim": 3, "embed": 6}
    >>> held_by(mesh, [place], sizes, jax=False) # doctest: +NORMALIZE_WHITESPACE
    {'q_proj': ((((0, 3), (0, 6)),), (((6, 9), (0, 6)),),
                (((3, 6), (0, 6)),), (((9, 12), (0, 6)),))}
    >>> held_by(mesh, [place], sizes, jax=True) # doctest: +NORMALIZE_WHITESPACE
    {'q_proj': ((((0, 6), (0, 3)),), (((6, 12), (0, 3)),),
                (((0, 6), (3, 6)),), (((6, 12), (3, 6)),))}
    """
    found: dict[str, Held] = {}
    ranks = Mesh((), ()) if mesh is None else mesh
    for place in places:
        if place.tensor not in found:
            try:
                held = _held(ranks, place.rule, tuple(sizes.items()), jax)
                if jax:
                    _part(held)
            except (ShardingError, SizeError) as error:
                raise PortError(f"mesh: {mesh}; {place.tensor}: {error}") from None
            found[place.tensor] = held
    count = 0 if mesh is None or jax else sum(map(len, shares_of(found).values()))
    if count > MOST:
        raise PortError(
            f"mesh: {mesh}; cuts {len(found):,} tensors into {count:,} boxes; wanted at most "
            f"{MOST:,}, of fewer ranks, or of tensors that each hold all experts of a layer"
        )
    return found


def aligned(extents: Sequence[int], held: Held, /) -> tuple[int, ...]:
    """Return regions of some extents, cut where ranks are if whole parts of ranks fill them.

    >>> aligned((8, 12), ((((0, 4), (0, 8)),), (((4, 8), (0, 8)),)))
    (4, 12)
    """
    pairs = zip(extents, _part(held), strict=True)
    return tuple(part if extent % part == 0 else extent for extent, part in pairs)


def _part(held: Held) -> tuple[int, ...]:
    """Return the shape of what every rank holds, if it is one box of the same shape for all."""
    shapes = {tuple(map(extent, boxes)) for boxes in held}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1:
        axes = zip(*itertools.chain(*held), strict=True)
        whole = tuple(max(stop for _, stop in cuts) for cuts in axes)
        raise SizeError(
            "the parts of ranks would not be boxes of one shape, as JAX cuts; wanted numbers of "
            f"ranks that divide {whole} evenly"
        )
    return shapes.pop()[0]


def shares_of(held: Mapping[str, Held], /) -> dict[str, list[tuple[int, Bounds]]]:
    """Return the boxes of every tensor, each once, with the first rank that holds it.

    >>> shares_of({"norm": ((((0, 4),),), (((0, 4),),))})
    {'norm': [(0, ((0, 4),))]}
    """
    # Tensors of a kind have the same value, which is not hashed once for each layer.
    kinds = {id(ranks): ranks for ranks in held.values()}
    shares = {kind: _first_holders(ranks) for kind, ranks in kinds.items()}
    return {name: shares[id(ranks)] for name, ranks in held.items()}


def _first_holders(ranks: Held) -> list[tuple[int, Bounds]]:
    first: dict[Bounds, int] = {}
    for rank, boxes in enumerate(ranks):
        for box in boxes:
            first.setdefault(box, rank)
    return [(rank, box) for box, rank in first.items()]


@lru_cache(64)  # a dialect has some twenty rules, each for tensors of every layer and expert
def _held(mesh: Mesh, rule: Rule, sizes: tuple[tuple[str, int], ...], jax: bool) -> Held:
    known = dict(sizes)
    shape, counts = rule.target_shape(known), dict(zip(mesh.names, mesh.shape, strict=True))
    axis, split = _cut(rule, shape, known, counts.get("tp", 1))
    if jax and split is not None and split.overlaps:
        raise SizeError(
            f"ranks would hold copies of {known['kv']} heads, and JAX cuts without copies; wanted "
            f"tp={known['kv']} at most"
        )
    leads = [group[0] for group in rule.sides[1]]
    width = leads.index("embed") if "embed" in leads else None
    along, stacked = (width, ()) if jax else (0, rule.stacked)
    fused = len(rule.stacked)
    found = []
    for rank in range(mesh.size):
        at = dict(zip(mesh.names, mesh.coordinates(rank), strict=True))
        runs: list[Sequence[range]] = [
            [range(k, k + 1) for k in range(n)] if lead in stacked else [range(n)]
            for lead, n in zip(leads, shape, strict=True)
        ]
        if split is not None:
            runs[axis] = split.runs(shape[axis], (counts.get("tp", 1),), (at.get("tp", 0),))
        runs[fused] = [
            range(max(run.start, start), min(run.stop, stop))
            for run in runs[fused]
            for start, stop in _segments(rule, known, shape[fused])
        ]
        if along is not None:
            runs[along] = _chunk(runs[along], counts.get("fsdp", 1), at.get("fsdp", 0))
        boxes = itertools.product(*[filter(None, of) for of in runs])
        found.append(tuple(tuple((run.start, run.stop) for run in box) for box in boxes))
    return tuple(found)


def _cut(rule: Rule, shape: Sequence[int], sizes: Sizes, parts: int) -> tuple[int, Split | None]:
    """Return the axis that the ranks of tensor parallelism share, and how; None: all hold it."""
    if parts == 1:
        return 0, None
    if rule.part is None:
        leads = [group[0] for group in rule.sides[1]]
        axis = next((k for k, lead in enumerate(leads) if lead in _SHARED), 0)
        terms = [_SHARED.get(leads[axis])]
    else:
        axis = len(rule.stacked)
        if _in_turn(rule, sizes, shape[axis]):
            terms = ["groups" if rule.lead in ("heads", "kv") else None]
        else:
            terms = [_SHARED.get(segment.split()[0]) for segment in rule.part.segments]
    features = [term for term in terms if term is not None]
    if len(features) < len(terms):
        return axis, None
    if features == ["groups"] and parts > sizes.get("kv", parts):
        return axis, Split()  # Megatron-core then cuts groups anywhere
    if set(features) == {"plain"}:  # as DTensor cuts, whose parts may be uneven
        return axis, Split(segments=len(features) if len(features) > 1 else None)
    numbers = Numbers(sizes.get("heads"), sizes.get("kv"))
    return axis, split_of(features, shape[axis], parts, numbers)


def _in_turn(rule: Rule, sizes: Sizes, n: int) -> bool:
    """Whether a fused axis has its segments turn by turn, as for each head of keys and values."""
    if rule.part is None:
        return False
    *_, turn = rule.part.span(sizes)
    return n != turn or rule.lead not in rule.part.segments[rule.part.index].split()


def _segments(rule: Rule, sizes: Sizes, n: int) -> Iterable[tuple[int, int]]:
    """Return the bounds of the segments of a fused axis, which Megatron-core loads one by one."""
    if rule.part is None or _in_turn(rule, sizes, n):
        return [(0, n)]
    spans = (Part(rule.part.segments, k).span(sizes) for k in range(len(rule.part.segments)))
    return [(begin, begin + own) for begin, own, _ in spans]


def _chunk(runs: Sequence[range], parts: int, at: int) -> list[range]:
    """Return one part of runs laid one after the other, as `torch.chunk` cuts them."""
    size = -(-sum(map(len, runs)) // parts)
    return runs_between(runs, size * at, size * (at + 1))
