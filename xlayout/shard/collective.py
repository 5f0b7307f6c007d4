"""Collective: remote messages that are one all-gather, or one all-to-all, along some mesh axes.

If every rank of a group sends as much to every other, one collective carries it all, and all ranks
run the same program.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from xlayout.shard.mesh import Mesh

if TYPE_CHECKING:
    from xlayout.shard.message import Form
    from xlayout.shard.plan import Plan

__all__ = ["Collective", "as_collective", "remote"]


@dataclass(frozen=True, slots=True)
class Collective:
    """One call that carries every remote message.

    Attributes:
        kind: "all_gather" if every rank sends the same to all others of its group.
        axes: the mesh axes along which the ranks of a group differ.
        groups: the ranks of each group, in the order of the mesh.
        width: elements that each rank sends to each other.
    """

    kind: Literal["all_gather", "all_to_all"]
    axes: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    width: int

    def __str__(self) -> str:
        return f"one {self.kind} among {len(self.groups[0])} ranks"


def remote(plan: Plan) -> Iterator[tuple[int, int, int, Form]]:
    """(sender, receiver, first address on the sender, form) of what leaves a rank, by receiver."""
    for dst in range(plan.ranks):
        for src, start, _, form in plan.arriving(dst):
            if src != dst:
                yield src, dst, start, form


def as_collective(plan: Plan) -> Collective | None:
    """The one collective that is equivalent to all remote messages, or None."""
    mesh = plan.src[0].mesh
    moved = list(remote(plan))
    sizes = {form.size for *_, form in moved}
    if len(sizes) != 1:
        return None
    size = sizes.pop()
    axes = _axes_between(((src, dst) for src, dst, *_ in moved), mesh)
    groups = _groups(mesh, axes)
    if len(moved) != sum(len(group) * (len(group) - 1) for group in groups):
        return None  # no message leaves its group, so the full count means every pair has one
    sent: dict[int, set[object]] = defaultdict(set)
    for src, _, start, form in moved:
        sent[src].add((start, form.packs))
    # Between two ranks each sends one message anyway: a gather is one that carries the whole part.
    same = all(len(packs) == 1 for packs in sent.values())
    whole = all(sum(map(math.prod, plan.stores(src))) == size for src in sent)
    gathers = same and (whole or len(groups[0]) > 2)
    return Collective("all_gather" if gathers else "all_to_all", axes, groups, size)


def _axes_between(pairs: Iterable[tuple[int, int]], mesh: Mesh) -> tuple[int, ...]:
    """The mesh axes along which a sender and a receiver ever differ."""
    places = [mesh.coordinates(rank) for rank in range(mesh.size)]
    found: set[int] = set()
    for src, dst in pairs:
        ends = zip(places[src], places[dst], strict=True)
        found |= {axis for axis, (a, b) in enumerate(ends) if a != b}
    return tuple(sorted(found))


def _groups(mesh: Mesh, axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank in range(mesh.size):
        place = mesh.coordinates(rank)
        groups[tuple(k for axis, k in enumerate(place) if axis not in axes)].append(rank)
    return tuple(map(tuple, groups.values()))
