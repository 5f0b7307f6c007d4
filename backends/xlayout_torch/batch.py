"""Batch: the moves of many tensors on a GPU, in as many launches as there are kinds of tiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from xlayout_torch import cuda, launches, trial
from xlayout_torch.memory import count_write
from xlayout_triton.plan import Moves, Plan, alignment, planned
from xlayout_triton.uncompiled import CompileError, say

__all__ = ["Batch", "move_many"]

Items = Iterable[tuple[Moves, Sequence[Any], Sequence[Any]]]
"""(moves, arrays, outputs)"""


def move_many(items: Items) -> bool:
    """`move` for many tensors at once, in as many launches as there are kinds of tiles.

    The gates are not asked again: `batch_strides` asked them, and the outputs are new.
    """
    try:
        batch = Batch.prepared(items, once=True)
        if batch is None:
            return False
        batch.run()
    except CompileError as error:
        say(error, "torch")
        return False
    return True


class Batch:
    """Moves between many tensors, prepared once; each `run` is a few launches.

    It keeps the tensors alive. The gates are asked when it is made; whoever runs it vouches that
    they are still open.
    """

    def __init__(
        self, made: Plan, table: Any, ends: Any, tensors: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        self._made = made
        self._table = table
        self._ends = ends
        self._tensors = tensors
        self._outputs = outputs

    @classmethod
    def of(cls, items: Items) -> Batch | None:
        """The batch of these, or None where torch should make the moves.

        Raises:
            CompileError: as `prepared`.
        """
        calls = list(items)
        tensors = [x for _, arrays, ys in calls for x in (*arrays, *ys)]
        if not tensors or cuda.is_closed(*tensors):
            return None
        return cls.prepared(calls, once=False)

    @classmethod
    def prepared(cls, items: Items, *, once: bool) -> Batch | None:
        """The same, without asking the gates; if it runs once, then on the current stream.

        Raises:
            CompileError: as `trial.require`.
        """
        calls = list(items)
        outputs = [y for _, _, ys in calls for y in ys]
        device = outputs[0].device
        if any(y.device != device for y in outputs) or cuda.why_not(device):
            return None
        tensors = [x for _, arrays, ys in calls for x in (*arrays, *ys)]
        addresses = launches.addresses_of(tensors)
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
        made, tables, lists = found
        trial.require(made, device)
        ends = made.ends(addresses)
        if once:
            current = launches.stream(device)
            table = launches.kept(tables, device, current, lambda: made.words)
            # Results of the same conversion are often at the addresses of those before.
            there = launches.kept(lists, device, current, lambda: ends, ends.tobytes())
        else:  # before whatever is started later, on any stream
            table, there = (launches.words_of(words).to(device) for words in (made.words, ends))
        return cls(made, table, there, tensors, outputs)

    @property
    def launches(self) -> int:
        """Launches of each run."""
        return len(self._made.launches)

    def run(self) -> None:
        """Make the moves.

        Raises:
            CompileError: Triton does not compile the kernel for some of them.
        """
        count_write(self._outputs)  # first: as the write ends, a handler of signals may raise
        with launches.on(self._outputs[0].device):
            launches.launch(self._made, self._table, self._ends)


@lru_cache(8)  # a plan of a thousand tensors takes half a megabyte
def _planned(*calls: Any) -> tuple[Plan, launches.Uploads, launches.Uploads] | None:
    """The plan of all calls, and what was uploaded: tables and lists of ends."""
    made = planned(*calls)
    return None if made is None else (made, {}, {})
