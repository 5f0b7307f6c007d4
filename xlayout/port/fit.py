"""Tile lengths that fit in memory, determined before anything is read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from xlayout.errors import PortError
from xlayout.port.lanes import LANES
from xlayout.port.move import Move

__all__ = ["fit", "fit_port"]

_ROOMY = 32 << 20  # bytes of a tile; longer ones are no faster, and their new pages cost time

_Kind: TypeAlias = tuple[tuple[object, ...], ...]
_Tied: TypeAlias = dict[frozenset[_Kind], list[Sequence[Move]]]


def fit(
    groups: Sequence[Sequence[Move]], max_ram: int, /, *, ties: Iterable[Hashable] = ()
) -> list[tuple[Move, ...]]:
    """Return moves with tiles that fit.

    Tiles of one group have the same length, and are in memory together. They are short enough that
    `LANES` of them fit, but longer if they would otherwise cut chunks of the source, which would
    then be read again for each tile. So are those of groups that are tied: `ties` has one value
    for each group, equal for those that write one tensor, whose chunks all of them must fill.

    They are then evened out: the same number of tiles, all of about the same length. A tile may
    become a chunk of the output, where the last chunk takes as much space as the others. Of k even
    tiles the last is at most k - 1 leads shorter, which is never more than a third of the tensor;
    with uneven tiles it could be nearly empty.

    Besides the buffers there must be room for the largest chunk that a tile cuts, because a chunk
    is read and decoded whole.

    Raises:
        PortError: Not even the shortest tiles fit.
    """
    # A model has thousands of moves, for its layers and experts, but only a few kinds of them.
    kinds = [tuple(_kind(move) for move in group) for group in groups]
    tied: dict[Hashable, dict[_Kind, Sequence[Move]]] = {}
    ties = list(ties) or kinds
    for tie, kind, group in zip(ties, kinds, groups, strict=True):
        tied.setdefault(tie, {}).setdefault(kind, group)
    keys = {tie: frozenset(alike) for tie, alike in tied.items()}
    one: _Tied = {keys[tie]: list(alike.values()) for tie, alike in tied.items()}
    fitted, _ = _fitted(one, max_ram)
    if not fitted:
        raise PortError(f"max_ram: {max_ram:,} bytes; {_least_that_works(one, max_ram)}")
    leads = {tie: fitted[key][0].lead for tie, key in keys.items()}
    return [
        tuple(replace(move, lead=leads[tie]) for move in group)
        for tie, group in zip(ties, groups, strict=True)
    ]


def fit_port(moves: Sequence[Move], max_ram: int, /) -> list[Move]:
    """Return moves with the longest tiles that fit both while porting and while comparing.

    Raises:
        PortError: Not even the shortest tiles fit.
    """
    ways = [(move,) for move in moves] + [move.back() for move in moves]
    ties = [move.target.tensor for move in moves] + [("back", k) for k in range(len(moves))]
    return [move for move, *_ in fit(ways, max_ram, ties=ties)[: len(moves)]]


def _fitted(
    one: _Tied, max_ram: int
) -> tuple[dict[frozenset[_Kind], tuple[Move, ...]], Move | None]:
    """Return moves with tiles that fit, or none; and the move that cuts the largest chunk so far.

    In the room that is left beside the chunk tiles are shorter, and may cut a larger one.
    """
    leasts = {key: max(map(_least, alike)) for key, alike in one.items()}
    held, cut = 0, None
    while max(leasts.values()) <= (room := max_ram - held):
        share = min(room // LANES, _ROOMY)
        fitted = {
            key: _stretched(alike, max(share // leasts[key], 1), room // leasts[key])
            for key, alike in one.items()
        }
        cut = max((move for group in fitted.values() for move in group), key=lambda m: m.held)
        if cut.held <= held:
            return fitted, cut
        held = cut.held
    return {}, cut


def _least_that_works(one: _Tied, max_ram: int) -> str:
    """Return which memory works where this does not and one byte less would not, and what for."""
    worst = max((group for alike in one.values() for group in alike), key=_least)

    def need(cut: Move | None) -> int:
        return _least(worst) + (cut.held if cut else 0)

    enough = max_ram
    while not (found := _fitted(one, enough))[0]:
        enough = need(found[1])
    between = range(max_ram + 1, enough)
    least = max_ram + 1 + bisect_left(between, True, key=lambda n: bool(_fitted(one, n)[0]))
    _, cut = _fitted(one, least - 1)
    text = f"one slice of {worst[0].source.tensor}"
    if cut and need(cut) > least:
        text = f"a tile of whole chunks of {cut.source.tensor}"
    elif cut:
        text += f" beside {cut.held:,} for a chunk of {cut.source.tensor}, which is read whole,"
    return f"{text} needs {least:,}, which is the least that works"


def _kind(move: Move) -> tuple[object, ...]:
    """Return everything that determines the memory a move takes."""
    return move.source.rule, move.target.rule, move.change, move.chunk


def _least(group: Sequence[Move]) -> int:
    return sum(sum(move.buffers(1)) for move in group)


def _stretched(groups: Sequence[Sequence[Move]], few: int, most: int) -> tuple[Move, ...]:
    """Return moves with tiles of about `few` leads, or up to `most` if shorter ones cut chunks."""
    moves = [move for group in groups for move in group]
    whole = moves[0].sizes[moves[0].source.rule.lead]
    most = min(whole, most)
    while few < most:
        for tiles in _even_or_not(moves, few, whole):
            if not any(move.held for move in tiles):
                return tiles
        few *= 2
    even, longest = _even_or_not(moves, most, whole)
    # A chunk of the source that even tiles would cut takes memory, and is read more than once.
    cuts = any(a.held > b.held for a, b in zip(even, longest, strict=True))
    return longest if cuts else even


def _even_or_not(moves: Sequence[Move], lead: int, whole: int) -> tuple[tuple[Move, ...], ...]:
    """Return moves with even tiles of at most `lead`, and moves with tiles of exactly `lead`."""
    leads = -(-whole // -(-whole // lead)), lead
    even, longest = (tuple(replace(move, lead=lead) for move in moves) for lead in leads)
    return even, longest
