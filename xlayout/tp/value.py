"""Value: the plan of each weight, and the plan as a table."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from xlayout.algebra.shapes import Shape
from xlayout.shard import Mesh, Sharding
from xlayout.table import Table
from xlayout.tp.features import heads_on
from xlayout.tp.numbers import Numbers
from xlayout.tp.rules import Rule

__all__ = ["AXIS", "Placed", "TensorPlan"]

AXIS = "tp"


@dataclass(frozen=True, slots=True)
class Placed:
    """One weight of a plan.

    Attributes:
        shape: the shape of the whole weight.
        sharding: which part each rank holds.
        rule: the rule that matched; None if none did, and every rank holds the whole.
        tail: how many of a layer's last outputs every rank uses for its own heads.
    """

    shape: Shape
    sharding: Sharding
    rule: Rule | None
    tail: int = 0

    @property
    def axis(self) -> int | None:
        """The axis that is cut; None if every rank holds the whole."""
        spec = self.sharding.spec
        return len(spec) - 1 if spec else None

    @property
    def overlaps(self) -> bool:
        """Whether several ranks hold the same part, such as a key-value head."""
        return self.axis is not None and self.sharding.split(self.axis).overlaps


@dataclass(frozen=True, slots=True, repr=False)
class TensorPlan(Mapping[str, Placed]):
    """Where the weights of a model go, by name; `str` shows it as a table.

    Attributes:
        parts: how many ranks share the model.
        rules: all rules, in the order in which they were tried.
        numbers: the heads of the model.
    """

    parts: int
    rules: tuple[Rule, ...]
    numbers: Numbers
    _placed: dict[str, Placed] = field(hash=False)

    def __getitem__(self, name: str) -> Placed:
        return self._placed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._placed)

    def __len__(self) -> int:
        return len(self._placed)

    @property
    def mesh(self) -> Mesh:
        """The ranks: one axis, "tp"."""
        return Mesh(self.parts, AXIS)

    @property
    def unused(self) -> tuple[Rule, ...]:
        """Rules that match no weight: for layers that this model lacks, or with a wrong pattern."""
        used = {placed.rule for placed in self.values()}
        return tuple(rule for rule in self.rules if rule not in used and rule.cut != "sum")

    @property
    def unmatched(self) -> tuple[str, ...]:
        """Matrices that no rule matches: every rank holds them whole."""
        return tuple(
            name for name, placed in self.items() if placed.rule is None and len(placed.shape) > 1
        )

    def local_shape(self, name: str, rank: int) -> Shape:
        """The shape of what a rank holds of a weight.

        Raises:
            KeyError: for a name that the plan does not have.
            SizeError: for a rank that does not exist.
        """
        placed = self[name]
        return placed.sharding.local_shape(rank, placed.shape)

    def elements(self, rank: int) -> int:
        """How many elements a rank holds of all weights together.

        Raises:
            SizeError: for a rank that does not exist.
        """
        return _elements(self._alike(), rank)

    def _alike(self) -> Counter[tuple[Sharding, Shape]]:
        """How many weights are cut alike: layers repeat, and each is hashed in Python."""
        return Counter((placed.sharding, placed.shape) for placed in self.values())

    def heads_on(self, rank: int) -> tuple[int, int]:
        """(query heads, key-value heads) of a rank.

        Raises:
            ShardingError: if the model's head counts are not known.
            SizeError: for a rank that does not exist.
        """
        self.mesh.coordinates(rank)
        own = heads_on(rank, self.parts, self.numbers)
        return own.heads or 0, own.kv_heads or 0

    def table(self) -> Table:
        """The plan as a table; layers that are cut alike share a row."""
        named = Counter(
            (re.sub(r"(?<![^._])\d+(?![^._])", "*", name), placed) for name, placed in self.items()
        )
        rows: dict[tuple[str, ...], int] = {}
        for (name, placed), n in named.items():
            row = name, *_cells(placed, self.parts)
            rows[row] = rows.get(row, 0) + n
        total, alike = sum(math.prod(placed.shape) for placed in self.values()), self._alike()
        most = max(_elements(alike, rank) for rank in range(self.parts))
        notes = [f"a rank holds {most:,} of {total:,} numbers at most"]
        if self.unmatched:
            some = ", ".join(self.unmatched[:3]) + (", …" if len(self.unmatched) > 3 else "")
            notes.append(f"no rule names {len(self.unmatched)} of the matrices: {some}")
        return Table(
            f"{len(self)} weights for {self.parts} ranks",
            ("weight", ">number", "shape", "cut", "between", "a rank holds"),
            tuple((name, str(n), *rest) for (name, *rest), n in rows.items()),
            tuple(notes),
        )

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return f"<TensorPlan of {len(self)} weights for {self.parts} ranks>"


def _elements(alike: Counter[tuple[Sharding, Shape]], rank: int) -> int:
    return sum(n * math.prod(s.local_shape(rank, shape)) for (s, shape), n in alike.items())


def _cells(placed: Placed, parts: int) -> tuple[str, str, str, str]:
    """(shape, cut, features, local shapes) of a weight in words."""
    shape = "x".join(map(str, placed.shape))
    locals_ = list(
        dict.fromkeys(placed.sharding.local_shape(rank, placed.shape) for rank in range(parts))
    )
    held = " or ".join("x".join(map(str, local)) for local in locals_[:3])
    held += " or …" if len(locals_) > 3 else ""
    if placed.rule is None or placed.axis is None:
        return shape, "whole", "", held
    return shape, placed.rule.cut, placed.rule.features.replace("plain", "features"), held
