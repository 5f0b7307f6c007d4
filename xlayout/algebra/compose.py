"""Compose, restrict and compare sets of pieces, all by joining boxes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import itemgetter

from xlayout.algebra.join import Side, join, side
from xlayout.algebra.merge import merge, whole
from xlayout.algebra.near import near
from xlayout.algebra.piece import Loop, Piece
from xlayout.errors import CompositionError

__all__ = [
    "MAX_PIECES",
    "between_each",
    "compose",
    "disjoint",
    "in_side",
    "restrict",
    "restrict_each",
    "same_pairs",
]

MAX_PIECES = 4096
_MAX_RAW = 64 * MAX_PIECES  # pieces before merging, which removes most of them
_CROWD = 16  # near others of a piece; to join more takes longer than a fingerprint of all
_FEW = 1 << 18  # positions; a table of this many is still faster than joining more pairs of pieces


def compose(
    first: Iterable[Piece], then: Iterable[Piece], most: int = _MAX_RAW
) -> tuple[Piece, ...]:
    """The pairs (i, o) that a middle position connects.

    Raises:
        CompositionError: when the result needs more than 4096 pieces, or `most` before merging.
    """
    first, then = tuple(first), tuple(then)
    merged = _by_table(first, then)
    if merged is None:
        merged = merge(_joined(first, then, most))
    if len(merged) > MAX_PIECES:
        raise _too_many(f"{len(merged)} pieces")
    return merged


def restrict(
    pieces: Iterable[Piece],
    inputs: tuple[int, int] | None = None,
    outputs: tuple[int, int] | None = None,
) -> tuple[Piece, ...]:
    """The pairs between a range of the inputs and one of the outputs, relative to their starts.

    A range that holds all pairs, as that of a side with one array does, is not applied: composing
    would look at every pair of loops.
    """
    pieces = tuple(pieces)
    if inputs is not None:
        low, high = inputs
        if low > 0 or any(p.in_end > high for p in pieces):
            pieces = compose((Piece(0, low, ((high - low, 1, 1),)),), pieces)
    if outputs is not None:
        low, high = outputs
        if low > 0 or any(p.out_end > high for p in pieces):
            pieces = compose(pieces, (Piece(low, 0, ((high - low, 1, 1),)),))
    return pieces


def restrict_each(
    pieces: Sequence[Piece], stretches: Iterable[tuple[int, int]], *, inputs: bool
) -> list[tuple[Piece, ...]]:
    """`restrict` to each of many stretches of the inputs, or of the outputs, in one go."""
    sides = [in_side(p) if inputs else (_out_side(p), ()) for p in pieces]
    meeting = near([shared for shared, _ in sides])
    made = []
    for low, high in stretches:
        window = side(low, 0, ((high - low, 1, 1),))
        found = []
        for k in meeting(window):
            shared, free = sides[k]
            for x, z, loops in join(window, shared) if inputs else join(shared, window):
                found.append(Piece(x, z, (*loops, *free)))
        made.append(merge(found))
    return made


def between_each(
    pieces: Sequence[Piece], ins: Sequence[tuple[int, int]], outs: Sequence[tuple[int, int]]
) -> list[tuple[int, int, tuple[Piece, ...]]]:
    """(input, output, pieces) of each two arrays that have any, in this order.

    Args:
        pieces: those between all arrays.
        ins: where each input begins and ends.
        outs: where each output does.
    """
    from bisect import bisect_left, bisect_right  # not loaded by `import xlayout`

    first, last = [low for low, _ in ins], [high for _, high in ins]
    to = restrict_each(pieces, outs, inputs=False) if len(outs) > 1 else [tuple(pieces)]
    found = []
    for k, here in enumerate(to):
        reached = {
            j
            for p in here
            for j in range(bisect_right(last, p.in_offset), bisect_left(first, p.in_end))
        }
        numbers = sorted(reached)
        parts = [here] * len(numbers)
        if len(ins) > 1:
            parts = restrict_each(here, [ins[j] for j in numbers], inputs=True)
        found += [(j, k, part) for j, part in zip(numbers, parts, strict=True) if part]
    return sorted(found, key=itemgetter(0, 1))


def same_pairs(left: Iterable[Piece], right: tuple[Piece, ...]) -> bool:
    """Whether two sets of pieces hold the same pairs. Each must hold every output at most once."""
    left = tuple(left)
    if left == right:
        return True
    total = _count(right)
    if _count(left) != total:
        return False
    if total <= min(len(left) * len(right), _FEW):
        table = _table(left)
        return table is not None and table == _table(right)
    sides = [_out_side(p) for p in right]
    meeting = near(sides)
    met = 0
    for piece in left:
        here = _out_side(piece)
        for k in meeting(here):
            for x, z, loops in join(here, sides[k]):
                if x != z or any(a != b for n, a, b in loops if n > 1):
                    return False
                met += math.prod([n for n, _, _ in loops])
    return met == total


def disjoint(pieces: tuple[Piece, ...]) -> bool:
    """Whether no output position is written twice."""
    if _count(pieces) <= min(len(pieces) ** 2, _FEW):
        return _table(pieces) is not None
    sides = [_out_side(p) for p in pieces]
    meeting = near(sides)
    # Where pieces lie across one another, most layouts write everything, and that is told quickly.
    if sum(len(meeting(here)) for here in sides) > _CROWD * len(sides) and whole(
        [Piece(at, at, tuple((n, z, z) for n, z, _ in steps)) for at, _, steps in sides]
    ):
        return True
    return not any(
        k < other and any(True for _ in join(here, sides[other]))
        for k, here in enumerate(sides)
        for other in meeting(here)
    )


def _table(pieces: tuple[Piece, ...]) -> dict[int, int] | None:
    """The input position of every output position, or None if one is written twice."""
    found: dict[int, int] = {}
    for p in pieces:
        pairs = [(p.out_offset, p.in_offset)]
        for n, x, z in p.loops:
            pairs = [(o + k * z, i + k * x) for o, i in pairs for k in range(n)]
        found.update(pairs)
    return found if len(found) == _count(pieces) else None


def _joined(first: tuple[Piece, ...], then: tuple[Piece, ...], most: int) -> list[Piece]:
    """The composition, before merging."""
    sides = [_out_side(p) for p in first]
    meeting = near(sides)
    pieces: list[Piece] = []
    for after in then:
        shared, free = in_side(after)
        for k in meeting(shared):
            for in_offset, out_offset, loops in join(sides[k], shared):
                pieces.append(Piece(in_offset, out_offset, loops + free))
                if len(pieces) > most:
                    raise _too_many(f"more than {most} pieces before merging")
    return pieces


def _by_table(first: tuple[Piece, ...], then: tuple[Piece, ...]) -> tuple[Piece, ...] | None:
    """The composition element by element, if both are many pieces of a few elements; else None."""
    if not all(len(side) > 64 and _count(side) <= 4 * len(side) for side in (first, then)):
        return None
    before, after = _table(first), _table(then)
    if before is None or after is None:
        return None
    return merge(Piece(before[at], o) for o, at in after.items() if at in before)


def _count(pieces: Iterable[Piece]) -> int:
    return sum([p.size for p in pieces])


def _out_side(piece: Piece) -> Side:
    """The output side, which carries the input positions."""
    return side(piece.out_offset, piece.in_offset, tuple((n, z, x) for n, x, z in piece.loops))


def in_side(piece: Piece) -> tuple[Side, tuple[Loop, ...]]:
    """The input side, carrying output positions; and the broadcasts, which do not move on it."""
    moving = tuple(loop for loop in piece.loops if loop[1])
    free = tuple(loop for loop in piece.loops if not loop[1])
    return side(piece.in_offset, piece.out_offset, moving), free


def _too_many(count: str) -> CompositionError:
    return CompositionError(
        f"layout >> layout: the result has {count}, the limit is {MAX_PIECES}: the sizes of "
        "the two have no common refinement; apply the layouts one after the other instead"
    )
