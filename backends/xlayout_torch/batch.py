"""Batch: the moves of many tensors on a GPU, in as many launches as there are kinds of tiles."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import torch

from xlayout_torch import cuda
from xlayout_torch.cuda import Moves
from xlayout_torch.memory import count_write
from xlayout_triton.plan import Plan, alignment, planned

__all__ = ["Batch", "move_many"]


def move_many(items: Iterable[tuple[Moves, Sequence[Any], Sequence[Any]]]) -> bool:
    """`move` for many tensors at once, in as many launches as there are kinds of tiles."""
    batch = Batch.of(items, once=True)
    if batch is not None:
        batch.run()
    return batch is not None


class Batch:
    """Moves between many tensors, prepared once; each `run` is a few launches.

    It keeps the tensors. Who runs it vouches that nobody looks on: the gates are asked when it is
    made.
    """

    def __init__(
        self, made: Plan, table: Any, tensors: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        self._made = made
        self._table = table
        self._tensors = tensors
        self._outputs = outputs

    @classmethod
    def of(
        cls, items: Iterable[tuple[Moves, Sequence[Any], Sequence[Any]]], *, once: bool = False
    ) -> Batch | None:
        """The batch of (moves, arrays, outputs), or None where torch should make the moves.

        `once`: it will run once, on the stream of now, so that nobody waits for its table.
        """
        calls = list(items)
        outputs = [y for _, _, made in calls for y in made]
        tensors = [x for _, arrays, made in calls for x in (*arrays, *made)]
        if not tensors or cuda.watched(*tensors) or len({x.device for x in tensors}) > 1:
            return None
        device = tensors[0].device
        if cuda.why_not(device):
            return None
        found = _planned(
            *[
                (moves, arrays[0].itemsize, _aligned(arrays), _aligned(made))
                for moves, arrays, made in calls
            ]
        )
        if found is None:
            return None
        there, upload = found.at(cuda.addresses_of(tensors)), cuda.uploaded if once else _table
        return cls(there, upload(there.words, device), tensors, outputs)

    @property
    def launches(self) -> int:
        """Launches of each run."""
        return len(self._made.launches)

    def run(self) -> None:
        """Make the moves."""
        with cuda.on(self._outputs[0].device):
            cuda.launch(self._made, self._table)
        count_write(self._outputs)


_planned = lru_cache(8)(planned)  # a plan of a thousand tensors takes half a megabyte


def _aligned(xs: Sequence[Any]) -> tuple[int, ...]:
    return tuple([alignment(x.data_ptr()) for x in xs])


def _table(words: array[int], device: torch.device) -> Any:
    """The words on a device, there for every stream."""
    return cuda.words_of(words).to(device)
