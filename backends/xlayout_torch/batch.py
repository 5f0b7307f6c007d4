"""Batch: the moves of many tensors on a GPU, in as many launches as there are kinds of tiles."""

from __future__ import annotations

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

Upload = Callable[[Plan, cuda.Uploads, Sequence[int], torch.device], tuple[Any, Any]]
"""(plan, its tables by stream, addresses, device) -> (table, ends) on the device"""


def move_many(items: Items) -> bool:
    """`move` for many tensors at once, in as many launches as there are kinds of tiles.

    Whether somebody looks on is not asked again: `together` did, and the outputs are new.
    """
    # It runs once, on the current stream, which need not wait for what is uploaded.
    batch = Batch.prepared(items, _for_this_stream)
    if batch is not None:
        batch.run()
    return batch is not None


class Batch:
    """Moves between many tensors, prepared once; each `run` is a few launches.

    It keeps the tensors alive. The gates are asked when it is made; whoever runs it vouches that
    they are still open.
    """

    def __init__(
        self, made: Plan, uploads: tuple[Any, Any], tensors: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        self._made = made
        self._table, self._ends = uploads
        self._tensors = tensors
        self._outputs = outputs

    @classmethod
    def of(cls, items: Items) -> Batch | None:
        """The batch of these, or None where torch should make the moves."""
        calls = list(items)
        tensors = [x for _, arrays, ys in calls for x in (*arrays, *ys)]
        if not tensors or cuda.is_closed(*tensors):
            return None
        return cls.prepared(calls, _for_every_stream)

    @classmethod
    def prepared(cls, items: Items, upload: Upload) -> Batch | None:
        """The same, without asking the gates; `upload` puts table and ends on a device."""
        calls = list(items)
        outputs = [y for _, _, ys in calls for y in ys]
        device = outputs[0].device
        if any(y.device != device for y in outputs) or cuda.why_not(device):
            return None
        tensors = [x for _, arrays, ys in calls for x in (*arrays, *ys)]
        addresses = cuda.addresses_of(tensors)
        divided = tuple(map(alignment, addresses))
        asked, at = [], 0
        for moves, arrays, ys in calls:
            to = at + len(arrays)
            end = to + len(ys)
            asked.append((moves, arrays[0].itemsize, divided[at:to], divided[to:end]))
            at = end
        found = _planned(*asked)
        if found is None:
            return None
        made, tables = found
        return cls(made, upload(made, tables, addresses, device), tensors, outputs)

    @property
    def launches(self) -> int:
        """Launches of each run."""
        return len(self._made.launches)

    def run(self) -> None:
        """Make the moves."""
        with cuda.on(self._outputs[0].device):
            cuda.launch(self._made, self._table, self._ends)
        count_write(self._outputs)


@lru_cache(8)  # a plan of a thousand tensors takes half a megabyte
def _planned(*calls: Any) -> tuple[Plan, cuda.Uploads] | None:
    """The plan of all calls, and its tables by stream."""
    made = planned(*calls)
    return None if made is None else (made, {})


def _for_this_stream(
    made: Plan, tables: cuda.Uploads, addresses: Sequence[int], device: torch.device
) -> tuple[Any, Any]:
    """Table and ends for the current stream; the table may be there from the call before."""
    key = device, cuda.stream(device)
    table = cuda.kept(tables, key, device, lambda: made.words)
    return table, cuda.uploaded(made.ends(addresses), device)


def _for_every_stream(
    made: Plan, _tables: cuda.Uploads, addresses: Sequence[int], device: torch.device
) -> tuple[Any, Any]:
    """Table and ends, there before whatever is started later on any stream."""
    table, ends = (cuda.words_of(words).to(device) for words in (made.words, made.ends(addresses)))
    return table, ends
