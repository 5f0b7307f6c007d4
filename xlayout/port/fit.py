"""Tile lengths that fit in memory, determined before anything is read."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from xlayout.errors import PortError
from xlayout.port.lanes import LANES
from xlayout.port.move import Move

__all__ = ["fit", "fit_port"]

_ROOMY = 32 << 20  # bytes of a tile; longer ones are no faster, and their new pages cost time

_Kind: TypeAlias = tuple[tuple[object, ...], ...]


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
    one = {keys[tie]: list(alike.values()) for tie, alike in tied.items()}
    leasts = {key: max(map(_least, alike)) for key, alike in one.items()}
    worst = max(one, key=lambda key: leasts[key])
    room, beside = max_ram, ""
    while True:
        if leasts[worst] > room:
            need = leasts[worst] + max_ram - room
            first, *_ = max(one[worst], key=_least)
            raise PortError(
                f"max_ram: {max_ram:,} bytes; one slice of {first.source.tensor}{beside} "
                f"needs {need:,}, which is the least that works"
            )
        share = min(room // LANES, _ROOMY)
        fitted = {
            key: _stretched(alike, max(share // leasts[key], 1), room // leasts[key])
            for key, alike in one.items()
        }
        cut = max((move for group in fitted.values() for move in group), key=lambda m: m.held)
        if cut.held <= max_ram - room:
            break
        room = max_ram - cut.held
        beside = f" beside {cut.held:,} for a chunk of {cut.source.tensor}, which is read whole,"
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
