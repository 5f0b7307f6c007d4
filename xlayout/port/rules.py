"""Rules as data: one line gives the name and the layout of a tensor in another format.

    Rule("model.layers.{layer}.self_attn.q_proj.weight", "blk.{layer}.attn_q.weight",
         "(heads two half) embed -> (heads half two) embed")

The left side is the canonical form, which is Hugging Face's. The pattern is a layout in xlayout's
notation, with the model's sizes; the way back is `Layout.inverse()` and is never written down. A
`{layer}` or an `{expert}` in a name stands for each of them. If the target's name lacks one, it is
an axis on the right, along which they are stacked. A `Part` says that the target holds other
tensors beside this one, as a fused QKV does. Every canonical tensor can be cut along the first
factor of its first axis, the *lead*: a tile is the same rule with a smaller lead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from xlayout.algebra import Layout
from xlayout.errors import PatternError

__all__ = ["Part", "Power", "Rule", "Sizes"]

Sizes: TypeAlias = Mapping[str, int]
_Side: TypeAlias = tuple[tuple[str, ...], ...]

_COUNTED = ("layer", "expert")
_AXIS = re.compile(r"\(([^()]*)\)|(\w+)")


@dataclass(frozen=True, slots=True)
class Power:
    """A factor that is a power of one of the model's sizes.

    >>> Power("dim", -0.5).of({"dim": 64})
    0.125
    """

    size: str
    exponent: float

    def of(self, sizes: Sizes, /) -> float:
        """Return the factor for these sizes."""
        return float(sizes[self.size] ** self.exponent)

    def inverse(self) -> Power:
        """Return the factor that undoes this one."""
        return Power(self.size, -self.exponent)

    def __str__(self) -> str:
        names = {-0.5: f"1/√{self.size}", 0.5: f"√{self.size}"}
        return names.get(self.exponent, f"{self.size}^{self.exponent:g}")


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a fused tensor a canonical one is: a segment that recurs along the axis.

    All segments one after another are a *turn*, and the axis is a number of turns.

    Grouped queries, keys and values are `Part(("group dim", "dim", "dim"), 0)`, `1` and `2`: for
    every group of heads the queries of the group, then its key and its value. A gate before an up
    projection is `Part(("mlp", "mlp"), 0)`: all of the first, then all of the second.

    Args:
        segments: The lengths of all segments in turn, each a product of the model's sizes.
        index: Which of them this is.

    >>> Part(("group dim", "dim", "dim"), 1).span({"group": 4, "dim": 64})
    (256, 64, 384)
    """

    segments: tuple[str, ...]
    index: int

    def span(self, sizes: Sizes, /) -> tuple[int, int, int]:
        """Return where the segment begins in a turn, its length, and the length of the turn."""
        lengths = [math.prod(sizes[name] for name in each.split()) for each in self.segments]
        return sum(lengths[: self.index]), lengths[self.index], sum(lengths)

    def __str__(self) -> str:
        return f"part {self.index + 1} of {' + '.join(self.segments)}"


@dataclass(frozen=True, slots=True)
class Rule:
    """How one canonical tensor, or one of each layer or expert, lies in another format.

    Args:
        name: The canonical name; `{layer}` and `{expert}` stand for every one of them.
        target: The name in the other format.
        pattern: The layout from canonical to target; without an arrow, the same on both sides.
        scale: What the target's values are multiplied by.
        part: Which part of the target's first axis it is; None for all of it. The pattern of a part
            describes the part alone.

    Raises:
        PatternError: The pattern is more than axes and their factors, the two sides name different
            sizes, or the lead is not the first factor of an axis of the target, which for a part
            must be the first axis; or a name has other braces, or the target counts what the
            canonical name does not.
    """

    name: str
    target: str
    pattern: str
    scale: Power | None = None
    part: Part | None = None

    def __post_init__(self) -> None:
        left, right = self.sides
        if not left or not all(map(_is_axes, (left, right))) or _beside_axes(self.pattern):
            raise PatternError(
                f"{self.target}: {self.pattern!r}; wanted names of sizes, each once on a side, "
                "such as '(heads dim) embed -> embed heads dim'"
            )
        uncounted = f"{self.name} {self.target}"
        for what in self.counted:
            uncounted = uncounted.replace(f"{{{what}}}", "")
        if {*uncounted}.intersection("{}"):
            raise PatternError(
                f"{self.target}: of {self.name!r}; wanted braces for {{layer}} and {{expert}} only"
                ", and in the target those of the canonical name"
            )
        names, there = sorted(sum(left, ())), sorted(sum(right, ()))
        for what in _COUNTED:
            # A router has `expert` on both sides: there it is a size, and nothing is stacked.
            if (what in self.stacked) is not ((what,) in right and what not in names):
                raise PatternError(
                    f"{self.target}: {self.pattern!r}; wanted `{what}` among the target's axes "
                    f"where its name has no {{{what}}}, and only there"
                )
        if names != [name for name in there if name not in self.stacked]:
            raise PatternError(f"{self.target}: {self.pattern!r}; both sides must name the same")
        if not any(group[0] == self.lead for group in right):
            raise PatternError(
                f"{self.target}: {self.pattern!r}; {self.lead!r}, which leads the canonical "
                "tensor, must come first in an axis of the target, so that tiles stay regions"
            )
        if self.part is not None and right[len(self.stacked)][0] != self.lead:
            raise PatternError(
                f"{self.target}: {self.pattern!r}; {self.lead!r}, which leads the canonical "
                "tensor, must lead the target, of which it is a part, behind what is stacked"
            )

    @property
    def sides(self) -> tuple[_Side, _Side]:
        """The axes of both sides, each a tuple of the factors merged in it."""
        return _sides(self.pattern)

    @property
    def lead(self) -> str:
        """The factor along which the tensor is cut: the first of its first axis."""
        return self.sides[0][0][0]

    @property
    def counted(self) -> tuple[str, ...]:
        """What the rule is repeated for: "layer", "expert", both or neither."""
        return tuple(what for what in _COUNTED if f"{{{what}}}" in self.name)

    @property
    def stacked(self) -> tuple[str, ...]:
        """Those of `counted` that are stacked: one tensor of the target holds all layers, say."""
        return tuple(what for what in self.counted if f"{{{what}}}" not in self.target)

    @property
    def stack_axes(self) -> dict[str, int]:
        """The axis of the target that counts each of the stacked."""
        right = self.sides[1]
        return {what: right.index((what,)) for what in self.stacked}

    @property
    def named_sizes(self) -> set[str]:
        """The sizes that the rule needs, layers and experts among them if it is counted."""
        parts = self.part.segments if self.part else ()
        scale = [self.scale.size] if self.scale else []
        factors = sum(self.sides[0], ())
        return {*factors, *self.counted, *" ".join(parts).split(), *scale}

    def shape(self, sizes: Sizes, /) -> tuple[int, ...]:
        """Return the canonical shape."""
        return tuple(math.prod(sizes[name] for name in group) for group in self.sides[0])

    def target_shape(self, sizes: Sizes, /) -> tuple[int, ...]:
        """Return the target's shape, including all that is stacked or fused in it.

        Raises:
            PatternError: The axis does not hold the part a whole number of times.
        """
        shape = [math.prod(sizes[name] for name in group) for group in self.sides[1]]
        if self.part is not None:
            _, own, turn = self.part.span(sizes)
            turns, rest = divmod(shape[len(self.stacked)], own)
            if rest:
                raise PatternError(
                    f"{self.target}: {self.part}, of {own}, in an axis of {turns * own + rest}; "
                    "wanted a length that divides it"
                )
            shape[len(self.stacked)] = turns * turn
        return tuple(shape)

    def layout(self, sizes: Sizes, /, lead: int | None = None) -> Layout:
        """Return the layout of one canonical tensor, or of a tile of it that is `lead` long."""
        (left, right), stacked = self.sides, self.stacked
        used = {name: sizes[name] for group in left for name in group}
        if lead is not None:
            used[self.lead] = lead
        alone = tuple(group for group in right if group[0] not in stacked)
        return _layout((left, alone), tuple(used.items()))


@cache  # a model has a place for each rule in every layer and expert, and each of them asks
def _sides(pattern: str) -> tuple[_Side, _Side]:
    left, _, right = pattern.partition("->")
    return _groups(left), _groups(right or left)


def _groups(side: str) -> _Side:
    return tuple(tuple((many or one).split()) for many, one in _AXIS.findall(side))


def _is_axes(side: _Side) -> bool:
    """Whether every axis has factors, and every factor is a name that stands once."""
    names = sum(side, ())
    return () not in side and all(map(str.isidentifier, names)) and len({*names}) == len(names)


def _beside_axes(pattern: str) -> str:
    """Return what a pattern has besides one arrow and axes, such as a bracket that stays open."""
    return _AXIS.sub("", pattern.replace("->", "", 1)).strip()


@cache
def _layout(sides: tuple[_Side, _Side], sizes: tuple[tuple[str, int], ...]) -> Layout:
    left, right = (" ".join(f"({' '.join(group)})" for group in side) for side in sides)
    known = dict(sizes)
    shape = tuple(math.prod(known[name] for name in group) for group in sides[0])
    return Layout.parse(f"{left} -> {right}", shape, **known)
