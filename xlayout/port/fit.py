"""Tile lengths that fit in memory, determined before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from xlayout.errors import PortError
from xlayout.port.lanes import LANES
from xlayout.port.move import Move

__all__ = ["fit", "fit_port"]

_ROOMY = 32 << 20  # bytes of a tile; longer ones are no faster, and their new pages cost time

_Kind: TypeAlias = tuple[tuple[object, ...], ...]


def fit(groups: Sequence[Sequence[Move]], max_ram: int, /) -> list[tuple[Move, ...]]:
    """Return moves with tiles that fit.

    Tiles of one group have the same length, and are in memory together. They are short enough that
    `LANES` of them fit, but longer if they would otherwise cut chunks of the source, which would
    then be read again for each tile.

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
    one: dict[_Kind, Sequence[Move]] = {}
    for kind, group in zip(kinds, groups, strict=True):
        one.setdefault(kind, group)
    leasts = {kind: _least(group) for kind, group in one.items()}
    worst = max(one, key=lambda kind: leasts[kind])
    room, beside = max_ram, ""
    while True:
        if leasts[worst] > room:
            need = leasts[worst] + max_ram - room
            raise PortError(
                f"max_ram: {max_ram:,} bytes; one slice of {one[worst][0].source.tensor}{beside} "
                f"needs {need:,}, which is the least that works"
            )
        share = min(room // LANES, _ROOMY)
        fitted = {
            kind: _stretched(group, max(share // leasts[kind], 1), room // leasts[kind])
            for kind, group in one.items()
        }
        cut = max((move for group in fitted.values() for move in group), key=lambda m: m.held)
        if cut.held <= max_ram - room:
            break
        room = max_ram - cut.held
        beside = f" beside {cut.held:,} for a chunk of {cut.source.tensor}, which is read whole,"
    leads = {kind: group[0].lead for kind, group in fitted.items()}
    return [
        tuple(replace(move, lead=leads[kind]) for move in group)
        for kind, group in zip(kinds, groups, strict=True)
    ]


def fit_port(moves: Sequence[Move], max_ram: int, /) -> list[Move]:
    """Return moves with the longest tiles that fit both while porting and while comparing.

    Raises:
        PortError: Not even the shortest tiles fit.
    """
    ways = [(move,) for move in moves] + [move.back() for move in moves]
    return [move for move, *_ in fit(ways, max_ram)[: len(moves)]]


def _kind(move: Move) -> tuple[object, ...]:
    """Return everything that determines the memory a move takes."""
    return move.source.rule, move.target.rule, move.change, move.chunk


def _least(group: Sequence[Move]) -> int:
    return sum(sum(move.buffers(1)) for move in group)


def _stretched(group: Sequence[Move], few: int, most: int) -> tuple[Move, ...]:
    """Return moves with tiles of about `few` leads, or up to `most` if shorter ones cut chunks."""
    first = group[0]
    whole = first.sizes[first.source.rule.lead]
    most = min(whole, most)
    while few < most:
        for tiles in _even_or_not(group, few, whole):
            if not any(move.held for move in tiles):
                return tiles
        few *= 2
    even, longest = _even_or_not(group, most, whole)
    # A chunk of the source that even tiles would cut takes memory, and is read more than once.
    cuts = any(a.held > b.held for a, b in zip(even, longest, strict=True))
    return longest if cuts else even


def _even_or_not(group: Sequence[Move], lead: int, whole: int) -> tuple[tuple[Move, ...], ...]:
    """Return moves with even tiles of at most `lead`, and moves with tiles of exactly `lead`."""
    leads = -(-whole // -(-whole // lead)), lead
    even, longest = (tuple(replace(move, lead=lead) for move in group) for lead in leads)
    return even, longest
