"""Split: the rule by which mesh axes cut one axis of an array.

Systems differ in how they cut an uneven axis or a fused weight, and in what they do if there are
more ranks than heads; so the rule has a name and is part of the sharding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal, get_args

from xlayout.algebra.partition import partition
from xlayout.algebra.shapes import boolean, divisors, in_short, integer, integers, is_size, one_of
from xlayout.errors import SizeError

__all__ = ["Rule", "Runs", "Split", "Splits", "as_splits", "merged", "per_segment", "runs_between"]

Rule = Literal["ceil", "flat_ceil", "balanced", "even"]
Runs = tuple[range, ...]
"""Ranges of an axis, in the order in which they are stored."""

Cuts = tuple[tuple[int, int, int], ...]
"""(ranks, the rank's coordinate, position in the mesh) of each mesh axis, major to minor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How one axis of an array is divided among the ranks along some mesh axes.

    Args:
        rule: "ceil": full parts first; with several mesh axes one cut after the other, major to
            minor (`torch.chunk`, DTensor). "flat_ceil": the same, with all mesh axes counted as one
            (padded JAX arrays, ZeRO-3). "balanced": sizes differ by at most one unit (AutoTP).
            "even": equal parts, or an error (Megatron, JAX).
        unit: parts are multiples of this, such as a head size; the rest goes to the last. One
            number, or one per segment: queries of a group are cut together.
        sizes: the size of each part, instead of a rule.
        segments: the segments of a fused weight (gate and up; q, k and v), as their sizes or as
            the number of equal ones: each is cut by the rule, and a rank stores its parts of all
            of them one after the other.
        copies: how many neighbouring ranks hold the same part, one number or one per segment; for
            more ranks than key-value heads.
        pad: pad every part to the size of the largest.

    Raises:
        LayoutError: for an unknown rule.
        SizeError: for `sizes` together with a rule, or numbers below 1.
        TypeError: for numbers that are not ints, or a `pad` that is not a bool.

    >>> Split(rule="balanced").runs(10, (4,), (1,))
    (range(3, 6),)
    >>> Split(segments=(4, 2)).runs(6, (2,), (1,))
    (range(2, 4), range(5, 6))
    """

    rule: Rule = "ceil"
    unit: int | tuple[int, ...] = 1
    sizes: tuple[int, ...] | None = None
    segments: int | tuple[int, ...] | None = None
    copies: int | tuple[int, ...] = 1
    pad: bool = False

    def __post_init__(self) -> None:
        one_of("rule", self.rule, get_args(Rule))
        boolean(self.pad, "pad")
        object.__setattr__(self, "unit", _one_or_more(self.unit, "unit", 1))
        if self.sizes is not None:
            object.__setattr__(self, "sizes", integers(self.sizes, "sizes"))
            if self.rule != "ceil" or self.segments is not None:
                raise SizeError(f"sizes: {self.sizes} say every part; leave rule and segments out")
        if self.segments is not None:
            object.__setattr__(self, "segments", _one_or_more(self.segments, "segments", 0))
        object.__setattr__(self, "copies", _one_or_more(self.copies, "copies", 1))
        segments = len(self.segments) if isinstance(self.segments, tuple) else None
        for name, given in (("unit", self.unit), ("copies", self.copies)):
            if isinstance(given, tuple) and len(given) != segments:
                raise SizeError(f"{name}: {given}; wanted one number, or one for each segment")

    @property
    def overlaps(self) -> bool:
        """Whether some element may belong to several parts."""
        return self.copies != 1 if isinstance(self.copies, int) else max(self.copies) > 1

    def runs(
        self,
        n: int,
        counts: Sequence[int],
        place: Sequence[int],
        order: Sequence[int] | None = None,
        axis: int = 0,
    ) -> Runs:
        """The ranges of an axis of `n` elements that the rank at `place` holds.

        Args:
            n: size of the axis.
            counts: ranks along each mesh axis that cuts it, major to minor.
            place: the rank's coordinate along each of them.
            order: the position of each of them in the mesh. DTensor cuts in this order, which
                makes a difference for uneven sizes. By default they are in order.
            axis: the number of the array axis, for error messages.

        Raises:
            SizeError: when the rule cannot cut that size into that many parts.
        """
        position = tuple(range(len(counts))) if order is None else tuple(order)
        return _runs(self, n, tuple(zip(counts, place, position, strict=True)), axis)

    def _stretches(self, n: int, cuts: Cuts, axis: int) -> Iterator[range]:
        """The part of every segment."""
        segments = self.segments or 1
        if isinstance(segments, int):
            if self._nests and self.copies == self.unit == 1:
                yield from self._nested(n, cuts, 1, segments)
                return
            segments = partition(n, segments, rule="ceil")
        if sum(segments) != n:
            raise SizeError(f"segments: {segments} add up to {sum(segments)}; axis {axis} is {n}")
        starts = accumulate(segments, initial=0)
        units, groups = (per_segment(given, len(segments)) for given in (self.unit, self.copies))
        for first, size, unit, held in zip(starts, segments, units, groups, strict=False):
            for run in self._part(size, cuts, unit, held, axis):
                yield range(first + run.start, first + run.stop)

    @property
    def _nests(self) -> bool:
        return self.rule == "ceil" and self.sizes is None

    @staticmethod
    def _nested(n: int, cuts: Cuts, unit: int, segments: int = 1) -> list[range]:
        """One cut after the other in mesh order, each through the parts of more major cuts."""
        runs = [range(n)]
        for k, (count, at, position) in sorted(enumerate(cuts), key=lambda item: item[1][2]):
            parts = segments * math.prod(c for c, _, other in cuts[:k] if other > position)
            edges = _edges(sum(map(len, runs)), parts, "ceil", unit)
            kept: list[range] = []
            for low, high in itertools.pairwise(edges):
                cut = _edges(high - low, count, "ceil", unit)
                kept += runs_between(runs, low + cut[at], low + cut[at + 1])
            runs = kept
        return runs

    def _part(self, n: int, cuts: Cuts, unit: int, copies: int, axis: int) -> list[range]:
        """The part of one segment, of `n` elements."""
        ranks = math.prod(count for count, _, _ in cuts)
        if ranks % copies:
            raise SizeError(
                f"copies: {copies}; {ranks} ranks do not divide into groups of {copies}, they do "
                f"into groups of {in_short(divisors(ranks))}"
            )
        if self._nests and copies == 1:
            return self._nested(n, cuts, unit)
        at = 0
        for count, here, _ in cuts:
            at = at * count + here
        edges = self._checked_edges(n, ranks // copies, unit, axis)
        return [range(edges[at // copies], edges[at // copies + 1])]

    def _checked_edges(self, n: int, parts: int, unit: int, axis: int) -> tuple[int, ...]:
        """Where each part begins, and where the last ends, if the rule or the sizes allow that."""
        what = f"cannot shard axis {axis} = {n} into {parts}"
        if self.sizes is not None:
            if len(self.sizes) != parts or sum(self.sizes) != n:
                raise SizeError(
                    f"{what}: sizes {self.sizes} are {len(self.sizes)} parts of {sum(self.sizes)}"
                )
            edges = tuple(accumulate(self.sizes, initial=0))
            if math.gcd(*edges[:-1]) % unit:
                cut = next(cut for cut in edges if cut % unit)
                raise SizeError(_inside(what, cut, unit, n))
            return edges
        if self.rule == "even" and n % (parts * unit):
            cut = -(-n // parts)
            if n % unit or not cut % unit:
                clean = f"none in units of {unit}" if n % unit else in_short(divisors(n // unit))
                segment = " (a segment)" if self.segments is not None else ""
                raise SizeError(
                    f"{what}{segment}: parts would differ. Clean cuts: {clean}; or name a rule "
                    "for uneven parts, such as 'balanced'"
                )
            raise SizeError(_inside(what, cut, unit, n))
        return _edges(n, parts, "balanced" if self.rule == "balanced" else "ceil", unit)


def _one_or_more(given: Any, name: str, least: int) -> int | tuple[int, ...]:
    """One number, or one of at least `least` for each segment."""
    if is_size(given) or not isinstance(given, Iterable):
        return integer(given, name, 1)
    return integers(given, name, least)


def per_segment(given: int | tuple[int, ...], segments: int) -> tuple[int, ...]:
    """One value per segment, from one per segment or one for all."""
    return (given,) * segments if isinstance(given, int) else given


def as_splits(given: Splits) -> dict[int, Split]:
    """The split of each array axis, which may be given as a rule's name or as sizes."""
    try:
        pairs = dict(given)
    except (TypeError, ValueError):
        raise TypeError(
            f"splits: {given!r}; wanted a dict of array axes and how each is split"
        ) from None
    return {integer(axis, "splits", None): _as_split(split) for axis, split in pairs.items()}


def _as_split(given: Split | Rule | Sequence[int]) -> Split:
    if isinstance(given, str):
        return Split(rule=given)
    if isinstance(given, (tuple, list)):
        return Split(sizes=tuple(given))
    if not isinstance(given, Split):
        raise TypeError(f"splits: {given!r}; wanted a Split, the name of its rule or its sizes")
    return given


Splits = Mapping[int, Split | Rule | Sequence[int]] | Iterable[tuple[int, Split]]
"""How array axes are split, by axis, or as a `Sharding` holds it."""


@lru_cache(4096)
def _edges(n: int, parts: int, rule: Literal["balanced", "ceil"], unit: int) -> tuple[int, ...]:
    return tuple(accumulate(partition(n, parts, rule=rule, unit=unit), initial=0))


@lru_cache(1 << 16)
def _runs(split: Split, n: int, cuts: Cuts, axis: int) -> Runs:
    return merged(split._stretches(n, cuts, axis))


def runs_between(runs: Sequence[range], low: int, high: int) -> list[range]:
    """The positions `low` to `high` (excluded) of runs laid one after the other."""
    found, at = [], 0
    for run in runs:
        found.append(run[max(0, low - at) : max(0, high - at)])
        at += len(run)
    return found


def merged(runs: Iterator[range]) -> Runs:
    """Runs with adjacent ones joined, and empty ones dropped."""
    found: list[range] = []
    for run in filter(None, runs):
        if found and found[-1].stop == run.start:
            found[-1] = range(found[-1].start, run.stop)
        else:
            found.append(run)
    return tuple(found)


def _inside(what: str, cut: int, unit: int, n: int) -> str:
    clean = in_short(divisors(n // unit))
    return f"{what}: the cut at {cut} falls inside a unit of {unit}. Clean cuts: {clean}"
