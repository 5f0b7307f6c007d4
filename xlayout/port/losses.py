"""Values that would be lost, counted on a sample before the port begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xlayout.errors import PortError
from xlayout.port.change import Change, exact_dtype, roomy_dtype
from xlayout.port.formats import numpy_dtype
from xlayout.port.formats.base import require
from xlayout.port.move import Buffers
from xlayout.port.regions import gather
from xlayout.port.rules import Power
from xlayout.port.units import show_share

if TYPE_CHECKING:
    from xlayout.port.formats import Source
    from xlayout.port.move import Move

__all__ = ["Loss", "measure", "roomier"]

_SAMPLE = 1 << 20


@dataclass(frozen=True, slots=True)
class Loss:
    """How many elements of a rule's tensors do not come back, in a sample of the first tensor.

    Args:
        tensor: The tensor's name, or the pattern of the rule's names.
        change: What happens to its values.
        scale: The factor as the rule has it.
        lost: Elements that do not come back.
        sampled: Elements that were examined.
        overflowed: Lost elements that exceed the range of the dtype, and become infinity or NaN.
    """

    tensor: str
    change: Change
    scale: Power | None
    lost: int
    sampled: int
    overflowed: int = 0

    def __str__(self) -> str:
        times = f" times {self.scale} = {self.change.factor:.4g}" if self.scale else ""
        return (
            f"{self.tensor}: {show_share(self.lost, self.sampled)} of the elements do not come "
            f"back ({self.change.source}{times} rounded to {self.change.target})" + self._beyond
        )

    @property
    def _beyond(self) -> str:
        if not self.overflowed:
            return ""
        end = "NaN" if self.change.target == "float8_e4m3fn" else "infinity"  # it has no infinity
        return f", of these {show_share(self.overflowed, self.lost)} overflow to {end}"


def measure(source: Source, moves: Sequence[Move], /) -> list[Loss]:
    """Return the loss for each rule and each of its changes that the dtypes do not prove exact.

    A rule has several changes if its layers differ in dtype. A sample is examined in pieces as long
    as the move's tiles, which fit in memory.
    """
    require("numpy")  # here, before a run writes anything
    losses: dict[tuple[str, Change], Loss] = {}
    for move in moves:
        rule, change = move.source.rule, move.change
        if (rule.name, change) in losses or change.always_exact:
            continue
        per_lead = move.layout(1).size
        leads = min(move.sizes[rule.lead], max(1, _SAMPLE // per_lead))
        buffers, (behind, *_) = Buffers(move.need), move.buffers(move.lead)
        lost = overflowed = 0
        for start in range(0, leads, move.lead):
            stop = min(start + move.lead, leads)
            x = buffers.carve(0, numpy_dtype(change.source), ((stop - start) * per_lead,))
            gather(source, move.source.tensor, move.source.regions(move.sizes, start, stop), x)
            y = change.apply(x, buffers.carve(behind, numpy_dtype(change.target), x.shape))
            lost += change.losses(x, y)
            overflowed += change.overflows(x, y)
        sampled = leads * per_lead
        loss = Loss(rule.target, change, move.power, lost, sampled, overflowed)
        losses[rule.name, change] = loss
    return list(losses.values())


def roomier(moves: Sequence[Move], losses: Sequence[Loss], dtype: str | None, /) -> list[Move]:
    """Store in a wider dtype what exceeds its range, or refuse if the caller chose the dtype.

    The dtypes that are chosen for a factor lose only numbers at the ends of the range.

    Raises:
        PortError: The dtype was asked for, or is the one that the source once had.
    """
    lost = [(loss.tensor, loss.change) for loss in losses if loss.lost]
    if dtype is not None or any(
        change.target != exact_dtype(change.source, change.factor) for _, change in lost
    ):
        raise _refusal(losses, dtype)
    wide = {
        (tensor, change): replace(change, target=roomy_dtype(change.source, change.factor))
        for tensor, change in lost
    }
    return [
        replace(move, change=wide[key], checked=True)
        if (key := (move.source.rule.target, move.change)) in wide
        else move
        for move in moves
    ]


def _refusal(losses: Sequence[Loss], dtype: str | None) -> PortError:
    """Return the error for an exact port that would lose something; it says what would be exact."""
    lost = [loss for loss in losses if loss.lost]
    lines = "\n  ".join(str(loss) for loss in lost)
    changes = [(loss.change.source, loss.change.factor) for loss in lost]
    if dtype is None:
        what = "dtype: those that the source had would lose values"
        way = f"Name dtype={max(roomy_dtype(*change) for change in changes)!r} (--dtype)"
    else:
        what = f"dtype: {dtype!r} would lose values"
        wide = sorted({exact_dtype(*change) for change in changes})
        way = f"Leave dtype out to store them in {' and '.join(wide)}"
    return PortError(
        f"{what}:\n  {lines}\n{way}, which is exact; or round them with exact=False (--lossy)"
    )
