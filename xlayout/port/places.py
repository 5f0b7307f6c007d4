"""Where a canonical tensor lives in a checkpoint: in which tensor, and which regions of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xlayout.port.rules import Rule, Sizes

if TYPE_CHECKING:
    from xlayout.port.formats import Region

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one canonical tensor lives in a checkpoint: a tensor, or one slice of a stack.

    Args:
        rule: Its rule.
        layer: Which of the layers; None if the rule is not per layer.
        expert: Which of the experts; None if the rule is not per expert.
    """

    rule: Rule
    layer: int | None = None
    expert: int | None = None

    @property
    def name(self) -> str:
        """The canonical name."""
        return self.rule.name.format(layer=self.layer, expert=self.expert)

    @property
    def tensor(self) -> str:
        """The name of the tensor that holds it."""
        return self.rule.target.format(layer=self.layer, expert=self.expert)

    def regions(self, sizes: Sizes, start: int, stop: int, /) -> tuple[Region, ...]:
        """Return the parts of the tensor that together hold the leads from start to stop.

        They follow one another in the layout of the rule: a single one, or for a part of a fused
        tensor one per turn.
        """
        rule, at = self.rule, {"layer": self.layer, "expert": self.expert}
        stacked = rule.stacked
        cuts = []
        for group in rule.sides[1]:
            if group[0] in stacked:
                index = at[group[0]]
                assert index is not None
                cuts.append(slice(index, index + 1))
                continue
            inner = math.prod(sizes[name] for name in group[1:])
            span = (start, stop) if group[0] == rule.lead else (0, sizes[group[0]])
            cuts.append(slice(span[0] * inner, span[1] * inner))
        if rule.part is None:
            return (tuple(cuts),)
        before, after = cuts[: len(stacked)], cuts[len(stacked) + 1 :]
        turns = _turns(cuts[len(stacked)], *rule.part.span(sizes))
        return tuple((*before, turn, *after) for turn in turns)


def _turns(cut: slice, begin: int, own: int, turn: int, /) -> list[slice]:
    """Return where a cut of the part lies in the fused axis, turn by turn."""
    found = []
    for k in range(cut.start // own, -(-cut.stop // own)):
        first, last = max(cut.start - k * own, 0), min(cut.stop - k * own, own)
        found.append(slice(k * turn + begin + first, k * turn + begin + last))
    return found
