"""Batch: the moves of many tensors on a GPU, in as many launches as there are kinds of tiles."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import torch

from xlayout_torch import cuda
from xlayout_torch.memory import count_write
from xlayout_triton.plan import Moves, Plan, alignment, planned

__all__ = ["Batch", "move_many"]

Items = Iterable[tuple[Moves, Sequence[Any], Sequence[Any]]]
"""(moves, arrays, outputs)"""


def move_many(items: Items) -> bool:
    """`move` for many tensors at once, in as many launches as there are kinds of tiles.

    Whether somebody looks on is not asked again: `together` did, and the outputs are new.
    """
    # It runs once, on the current stream, which need not wait for its table.
    batch = Batch.prepared(items, cuda.uploaded)
    if batch is not None:
        batch.run()
    return batch is not None


class Batch:
    """Moves between many tensors, prepared once; each `run` is a few launches.

    It keeps the tensors alive. The gates are asked when it is made; whoever runs it vouches that
    they are still open.
    """

    def __init__(
        self, made: Plan, table: Any, tensors: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        self._made = made
        self._table = table
        self._tensors = tensors
        self._outputs = outputs

    @classmethod
    def of(cls, items: Items) -> Batch | None:
        """The batch of these, or None where torch should make the moves."""
        calls = list(items)
        tensors = [x for _, arrays, made in calls for x in (*arrays, *made)]
        return None if not tensors or cuda.is_closed(*tensors) else cls.prepared(calls, _table)

    @classmethod
    def prepared(
        cls, items: Items, upload: Callable[[array[int], torch.device], Any]
    ) -> Batch | None:
        """The same, without asking the gates; `upload` puts the table on a device."""
        calls = list(items)
        outputs = [y for _, _, made in calls for y in made]
        device = outputs[0].device
        if any(y.device != device for y in outputs) or cuda.why_not(device):
            return None
        tensors = [x for _, arrays, made in calls for x in (*arrays, *made)]
        addresses = cuda.addresses_of(tensors)
        divided = tuple(map(alignment, addresses))
        asked, at = [], 0
        for moves, arrays, made in calls:
            to = at + len(arrays)
            end = to + len(made)
            asked.append((moves, arrays[0].itemsize, divided[at:to], divided[to:end]))
            at = end
        found = _planned(*asked)
        if found is None:
            return None
        there = found.at(addresses)
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


def _table(words: array[int], device: torch.device) -> Any:
    """The words on a device, ready for every stream."""
    return cuda.words_of(words).to(device)
