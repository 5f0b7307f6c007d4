"""Tiles as long as memory allows, or the least memory that works, before a tile is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xlayout.errors import PortError
from xlayout.port.move import Move

__all__ = ["fit"]


def fit(groups: Sequence[Sequence[Move]], max_ram: int, /) -> list[tuple[Move, ...]]:
    """Return moves with the longest tiles that fit, each group's of one length and in together.

    They are then evened out: as many tiles, all about as long, so that the last one is no stub.
    A tile may become a chunk, and the last chunk is stored as large as the others. The last of k
    even tiles lacks at most k - 1 leads, which is less than one part in as many as a tile holds,
    and never more than a third of the tensor; uneven, it could be nearly all of it.

    Beside their buffers there must be room for the largest chunk that some tile cuts: it is read
    and decoded whole.

    Raises:
        PortError: Not even the shortest tiles fit.
    """
    room, beside = max_ram, ""
    worst = max(groups, key=_least)
    while True:
        if (least := _least(worst)) > room:
            need = least + max_ram - room
            raise PortError(
                f"max_ram: {max_ram:,} bytes; one slice of {worst[0].source.tensor}{beside} needs "
                f"{need:,}, which is the least that works"
            )
        fitted = [_stretched(group, room) for group in groups]
        cut = max((move for group in fitted for move in group), key=lambda move: move.held)
        if cut.held <= max_ram - room:
            return fitted
        room = max_ram - cut.held
        beside = f" beside {cut.held:,} for a chunk of {cut.source.tensor}, which is read whole,"


def _least(group: Sequence[Move]) -> int:
    return sum(sum(move.buffers(1)) for move in group)


def _stretched(group: Sequence[Move], room: int) -> tuple[Move, ...]:
    first = group[0]
    whole = first.sizes[first.source.rule.lead]
    most = min(whole, room // _least(group))
    longest, even = (
        tuple(replace(move, lead=lead) for move in group)
        for lead in (most, -(-whole // -(-whole // most)))
    )
    # A chunk of the source that even tiles would cut costs memory, and is read more than once.
    cuts = any(a.held > b.held for a, b in zip(even, longest, strict=True))
    return longest if cuts else even
