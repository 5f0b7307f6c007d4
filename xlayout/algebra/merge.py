"""Merge: fewer pieces, the same pairs.

Two pieces become one when they are two steps of a new loop, or two stretches of the same loop. The
search is greedy, in sweeps over the outputs until nothing changes. The result is short but not
unique, so equality of layouts does not rely on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from xlayout.algebra.fingerprint import fingerprint
from xlayout.algebra.piece import Loop, Piece, are_nested

__all__ = ["merge", "progressions", "whole"]

T = TypeVar("T")

_NEAR = 8  # how far back to look for a partner: pieces of one loop nest lie close together


def merge(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """The same pairs in fewer pieces, sorted by output offset; empty pieces dropped."""
    done = sorted((p for p in pieces if p.size), key=_order)
    while len(done) > 1:
        swept: list[Piece] = []
        for piece in done:
            _push(swept, piece)
        if len(swept) == len(done):
            break
        done = sorted(swept, key=_order)
    return whole(done) or tuple(done)


def progressions(
    items: Sequence[tuple[int, int, T]], fits: Callable[[T, Loop], bool]
) -> Iterator[tuple[int, int, T, Loop]]:
    """Equal items at equal distances, as the first of them and a loop over them all.

    `fits`: whether a loop may go around such an item; a loop of one step may have any strides.

    >>> items = [(0, 0, "a"), (5, 2, "a"), (10, 4, "a"), (15, 6, "b")]
    >>> list(progressions(items, lambda what, loop: True))
    [(0, 0, 'a', (3, 5, 2)), (15, 6, 'b', (1, 0, 0))]
    """
    k = 0
    while k < len(items):
        i, o, what = items[k]
        n, x, z = 1, 0, 0
        if k + 1 < len(items):
            x, z = items[k + 1][0] - i, items[k + 1][1] - o
        while k + n < len(items) and items[k + n] == (i + n * x, o + n * z, what):
            n += 1
        if n > 1 and not fits(what, (n, x, z)):
            n = 1
        yield i, o, what, (n, x, z)
        k += n


def whole(pieces: Sequence[Piece]) -> tuple[Piece, ...] | None:
    """The one piece of an identity, which the greedy search may miss; None if they are no such.

    That no two pieces overlap is told by a fingerprint, which is wrong once in some 2^60 cases.
    """
    size = sum(p.size for p in pieces)
    if len(pieces) < 2 or size != max(p.out_end for p in pieces):
        return None
    if any(p.in_offset != p.out_offset or any(x != z for _, x, z in p.loops) for p in pieces):
        return None
    one = (Piece(0, 0, ((size, 1, 1),)),)
    return one if fingerprint(pieces) == fingerprint(one) else None


def _order(piece: Piece) -> tuple[int, int]:
    return (piece.out_offset, piece.in_offset)


def _push(swept: list[Piece], piece: Piece) -> None:
    """Append a piece, fused with one of the last few if it fits; what results may fuse again."""
    for back in range(len(swept) - 1, max(-1, len(swept) - 1 - _NEAR), -1):
        fused = _fuse(swept[back], piece)
        if fused is not None:
            del swept[back]
            _push(swept, fused)
            return
    swept.append(piece)


def _fuse(p: Piece, q: Piece) -> Piece | None:
    """`p` and `q` as one piece, or None; `p` must start first on the output side."""
    x, z = q.in_offset - p.in_offset, q.out_offset - p.out_offset
    if p.loops == q.loops:
        return _stepped(p, (2, x, z)) if z > 0 and x >= 0 else None
    only_p = [loop for loop in p.loops if loop not in q.loops]
    only_q = [loop for loop in q.loops if loop not in p.loops]
    if len(only_p) > 1 or len(only_q) > 1:
        return None
    n, step_x, step_z = only_p[0] if only_p else (1, *only_q[0][1:])
    m = only_q[0][0] if only_q else 1
    if only_p and only_q and only_p[0][1:] != only_q[0][1:]:
        return None
    if (x, z) != (n * step_x, n * step_z):
        return None
    shared = tuple(loop for loop in p.loops if loop in q.loops)
    return _stepped(Piece(p.in_offset, p.out_offset, shared), (n + m, step_x, step_z))


def _stepped(p: Piece, loop: Loop) -> Piece | None:
    """A piece inside one more loop; None if the loop would overlap the others."""
    loops = (*p.loops, loop)
    return Piece(p.in_offset, p.out_offset, loops) if are_nested(loops) else None
