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
from xlayout_triton.plan import Plan, alignment, cuts, plan
from xlayout_triton.tile import Cut

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
        pieces: list[tuple[Cut, int, int]] = []
        tensors: list[Any] = []
        outputs: list[Any] = []
        for moves, arrays, made in items:
            both = (*arrays, *made)
            if cuda.watched(*both) or {x.device for x in both} != {both[0].device}:
                return None
            found = _cuts_of(
                moves,
                arrays[0].itemsize,
                tuple([alignment(x.data_ptr()) for x in arrays]),
                tuple([alignment(y.data_ptr()) for y in made]),
            )
            if found is None:
                return None
            sources, first = len(tensors), len(tensors) + len(arrays)
            pieces += [(one, sources + source, first + target) for one, source, target in found]
            tensors += both
            outputs += made
        if not outputs or len({x.device for x in outputs}) > 1 or cuda.why_not(outputs[0].device):
            return None
        there, upload = (
            plan(pieces).at(cuda.addresses_of(tensors)),
            cuda.uploaded if once else _table,
        )
        return cls(there, upload(there.words, outputs[0].device), tensors, outputs)

    @property
    def launches(self) -> int:
        """Launches of each run."""
        return len(self._made.launches)

    def run(self) -> None:
        """Make the moves."""
        with cuda.on(self._outputs[0].device):
            cuda.launch(self._made, self._table)
        count_write(self._outputs)


_cuts_of = lru_cache(4096)(cuts)


def _table(words: array[int], device: torch.device) -> Any:
    """The words on a device, there for every stream."""
    return cuda.words_of(words).to(device)
