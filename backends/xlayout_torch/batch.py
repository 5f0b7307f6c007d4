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
        forms: list[_Form] = []
        tensors: list[Any] = []
        outputs: list[Any] = []
        for moves, arrays, made in items:
            forms.append((moves, arrays[0].itemsize, len(arrays), len(made)))
            tensors += arrays
            tensors += made
            outputs += made
        if not tensors or cuda.watched(*tensors) or len({x.device for x in tensors}) > 1:
            return None
        device = tensors[0].device
        if cuda.why_not(device):
            return None
        addresses = cuda.addresses_of(tensors)
        found = _plan_of(tuple(forms), tuple(map(alignment, addresses)))
        if found is None:
            return None
        there, upload = found.at(addresses), cuda.uploaded if once else _table
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


_Form = tuple[Moves, int, int, int]
"""(moves, bytes of an element, how many inputs, how many outputs)"""


@lru_cache(8)  # a plan of a thousand tensors takes half a megabyte
def _plan_of(forms: tuple[_Form, ...], aligned: tuple[int, ...]) -> Plan | None:
    """The plan of what is moved between tensors, without their addresses; None as in `cuts`.

    aligned: what divides the addresses of each one's inputs and outputs.
    """
    pieces: list[tuple[Cut, int, int]] = []
    first = 0
    for moves, itemsize, inputs, outputs in forms:
        target = first + inputs
        last = target + outputs
        found = cuts(moves, itemsize, aligned[first:target], aligned[target:last])
        if found is None:
            return None
        pieces += [(one, first + j, target + k) for one, j, k in found]
        first = last
    return plan(pieces)


def _table(words: array[int], device: torch.device) -> Any:
    """The words on a device, there for every stream."""
    return cuda.words_of(words).to(device)
