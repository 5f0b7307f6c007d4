"""Plan: for each weight of a model the sharding, worked out from names and shapes alone."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xlayout.algebra.shapes import Shape, as_shape, integer
from xlayout.errors import LayoutError, ShardingError, SizeError
from xlayout.shard import Mesh, Sharding
from xlayout.table import Table
from xlayout.tp.agreement import check_companions, check_heads
from xlayout.tp.features import heads_on, split_of
from xlayout.tp.numbers import Numbers, numbers_of, said, text_of
from xlayout.tp.presets import PRESETS, preset_of
from xlayout.tp.rules import Rule, as_rules, cut_axis, first_match
from xlayout.tp.tree import named

__all__ = ["Placed", "TensorPlan", "plan"]

AXIS = "tp"


@dataclass(frozen=True, slots=True)
class Placed:
    """One weight of a plan.

    Attributes:
        shape: of the whole weight.
        sharding: who holds what of it.
        rule: the rule that says so; None where no rule named it, and every rank holds the whole.
        tail: how many of a layer's last results are used for every rank's own heads.
    """

    shape: Shape
    sharding: Sharding
    rule: Rule | None
    tail: int = 0


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
        """Rules that name no weight: those of layers that this model lacks, or a wrong pattern."""
        used = {placed.rule for placed in self.values()}
        return tuple(rule for rule in self.rules if rule not in used and rule.cut != "sum")

    @property
    def unmatched(self) -> tuple[str, ...]:
        """Matrices that no rule names: every rank holds the whole of them."""
        return tuple(
            name for name, placed in self.items() if placed.rule is None and len(placed.shape) > 1
        )

    def local_shape(self, name: str, rank: int) -> Shape:
        """The shape of what a rank holds of a weight.

        Raises:
            KeyError: for a name that the plan does not have.
            SizeError: for a rank that there is not.
        """
        placed = self[name]
        return placed.sharding.local_shape(rank, placed.shape)

    def elements(self, rank: int) -> int:
        """How many numbers a rank holds of all weights together.

        Raises:
            SizeError: for a rank that there is not.
        """
        alike = Counter((p.sharding, p.shape) for p in self.values())
        return sum(n * math.prod(s.local_shape(rank, x)) for (s, x), n in alike.items())

    def heads_on(self, rank: int) -> tuple[int, int]:
        """How many heads a rank has: of queries; of keys and values.

        Raises:
            ShardingError: for a model whose heads nobody counted.
            SizeError: for a rank that there is not.
        """
        self.mesh.coordinates(rank)
        own = heads_on(rank, self.parts, self.numbers)
        return own.heads or 0, own.kv_heads or 0

    def table(self) -> Table:
        """The plan as a table; layers that are cut alike share a row."""
        alike = Counter(
            (re.sub(r"(?<![^._])\d+(?![^._])", "*", name), placed) for name, placed in self.items()
        )
        rows: dict[tuple[str, ...], int] = {}
        for (name, placed), n in alike.items():
            row = name, *_told(placed, self.parts)
            rows[row] = rows.get(row, 0) + n
        total = sum(math.prod(placed.shape) for placed in self.values())
        most = max(map(self.elements, range(self.parts)))
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


def _told(placed: Placed, parts: int) -> tuple[str, str, str, str]:
    """(shape, cut, features, local shapes) of a weight in words."""
    shape = "x".join(map(str, placed.shape))
    locals_ = list(
        dict.fromkeys(placed.sharding.local_shape(rank, placed.shape) for rank in range(parts))
    )
    held = " or ".join("x".join(map(str, local)) for local in locals_[:3])
    held += " or …" if len(locals_) > 3 else ""
    if placed.rule is None or not placed.sharding.spec:
        return shape, "whole", "", held
    return shape, placed.rule.cut, placed.rule.features.replace("plain", "features"), held


def plan(
    weights: Any,
    parts: int,
    *,
    rules: str | Mapping[str, str] | Sequence[Rule] | None = None,
    config: Any = None,
    grain: int = 1,
) -> TensorPlan:
    """Plan how many ranks share the weights of a model, by names and shapes alone.

    Column-parallel and row-parallel layers are those of Megatron and AutoTP. Heads are never cut,
    each query stays with its key-value head, and fused weights are cut segment by segment.

    Args:
        weights: a state dict, or nested dicts of arrays or of shapes; or a module of torch.
        parts: how many ranks.
        rules: a list of `Rule`, of which the first that matches counts; the name of a preset; or a
            transformers `base_model_tp_plan`. By default the preset of the config's `model_type`,
            else the config's own plan.
        config: that of the model, an object or a dict with transformers' keys: it tells the number
            of heads. A module brings its own. Of a model of text and images, presets and the
            config's plan are for the text model in it.
        grain: features of an MLP are cut at multiples of it; what is left goes to the last rank.

    Returns:
        A `TensorPlan`. What no rule names is whole on every rank, and listed as `unmatched`.

    Raises:
        TypeError: for weights that are no such thing, or rules that are none.
        ShardingError: if there are no rules for such a model; if none of them matches; for heads
            whose number nobody said, or that do not agree between the weights of a layer; for
            weights of a layer that is cut, such as scales, of which no rule says how they are.
        SizeError: for a weight that cannot be cut so, naming it.

    >>> shapes = {"layers.0.self_attn.q_proj.weight": (8, 6), "norm.weight": (6,)}
    >>> made = plan(shapes, 2, rules="llama", config={"num_attention_heads": 4})
    >>> made.local_shape("layers.0.self_attn.q_proj.weight", 1), made.unmatched
    ((4, 6), ())
    """
    parts, grain = integer(parts, "parts", 1), integer(grain, "grain", 1)
    config = getattr(weights, "config", None) if config is None else config
    chosen, numbers = _rules(rules, config), numbers_of(config)
    shapes = {name: _shape(name, x) for name, x in named(weights, "weights").items()}
    if not shapes:
        raise LayoutError("weights: there are none")
    text = _text_part(shapes, config) if rules is None or isinstance(rules, str) else None
    mesh, placed = Mesh(parts, AXIS), {}
    for name, shape in shapes.items():
        found = first_match(chosen, name)
        if found is None or (text is not None and text not in name.split(".")):
            placed[name] = Placed(shape, Sharding(mesh, ()), None)
            continue
        rule, leaf = found
        sharding = _sharding(name, shape, rule, leaf, mesh, numbers, grain)
        placed[name] = Placed(shape, sharding, rule, _tail(rule, text_of(config)))
    if not any(p.rule for p in placed.values()):
        some = next(iter(placed), None)
        raise ShardingError(
            f"rules: none of the {len(chosen)} names a weight of this model, such as {some!r}"
        )
    check_heads(placed, numbers)
    check_companions(placed)
    return TensorPlan(parts, chosen, numbers, placed)


def _rules(given: Any, config: Any) -> tuple[Rule, ...]:
    if isinstance(given, str):
        if given not in PRESETS:
            raise LayoutError(f"rules: {given!r}; wanted one of {', '.join(map(repr, PRESETS))}")
        return PRESETS[given]
    if given is not None:
        return as_rules(given)
    text = text_of(config)
    preset = preset_of(text) or preset_of(config)
    own = said(text, "base_model_tp_plan")
    if preset is not None:
        return preset
    if own:
        return as_rules(own)
    raise ShardingError(
        f"rules: nothing is known of model_type {said(config, 'model_type')!r}; give rules, the "
        f"name of a preset ({', '.join(PRESETS)}) or a config"
    )


def _tail(rule: Rule, config: Any) -> int:
    if rule.tail is None:
        return 0
    size = said(config, rule.tail)
    if size is None:
        raise ShardingError(f"config: names no {rule.tail}, which the rule {rule.pattern!r} needs")
    return integer(size, rule.tail)


def _text_part(names: Mapping[str, Shape], config: Any) -> str | None:
    """What the text model is called inside one that has other models beside it, if anything."""
    if text_of(config) is config:
        return None
    parts = {part for name in names for part in name.split(".")}
    return next((name for name in ("language_model", "text_model") if name in parts), None)


def _shape(name: str, x: Any) -> Shape:
    try:
        return as_shape(getattr(x, "shape", x), f"weights[{name!r}]")
    except TypeError:
        raise TypeError(
            f"weights[{name!r}]: a {type(x).__name__}; wanted an array or its shape"
        ) from None


def _sharding(
    name: str,
    shape: Shape,
    rule: Rule,
    leaf: str,
    mesh: Mesh,
    numbers: Numbers,
    grain: int,
) -> Sharding:
    axis = cut_axis(rule, leaf, shape)
    if axis is None:
        return Sharding(mesh, ())
    if "plain" not in rule.terms and len(shape) > (1 if leaf == "bias" else 2):
        raise ShardingError(
            f"weights[{name!r}]: shape {shape}; the rule {rule.pattern!r} cuts between heads that "
            "share one axis of a matrix. Merge the axes of heads and of their features"
        )
    try:
        split = split_of(rule.terms, shape[axis], mesh.size, numbers, grain=grain)
        made = Sharding(mesh, [None] * axis + [AXIS], splits={axis: split})
        made.owned(mesh.size - 1, shape)
    except (SizeError, ShardingError) as error:
        raise type(error)(f"weights[{name!r}], shape {shape}, axis {axis}: {error}") from None
    return made
