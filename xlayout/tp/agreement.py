"""Agreement: checks, from the names and shapes of a layer's weights, that a plan is not wrong.

Miscounted heads, a fused weight cut in the wrong places, or a weight left whole beside a sharded
one would raise no error anywhere: only the results would be wrong.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from xlayout.errors import ShardingError
from xlayout.tp.numbers import Numbers
from xlayout.tp.rules import LEAVES

if TYPE_CHECKING:
    from xlayout.tp.value import Placed

__all__ = ["check_companions", "check_heads", "check_segments"]


def check_heads(placed: Mapping[str, Placed], numbers: Numbers) -> None:
    """Check that the layers of each attention module agree on the head size.

    The values must have the head size that the output layer takes, which reveals a number of
    key-value heads that is missing from the config or differs in one layer.

    Raises:
        ShardingError: for layers that do not agree.
    """
    keys: dict[str, dict[str, int]] = defaultdict(dict)
    others: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for name, one in placed.items():
        if one.rule is None or one.axis is None or not one.rule.between_heads:
            continue
        size = _head_size(one, numbers)
        attention = _layer(name).rpartition(".")[0]
        if {"kv_heads", "groups"} & {*one.rule.terms}:
            keys[attention][name] = size
        else:
            others[attention][one.rule.cut][name] = size
    for attention, found in keys.items():
        rows, queries = others[attention]["row"], others[attention]["column"]
        fitting = rows.values() or queries.values()
        agree = any(
            size == other or (not rows and size and other % size == 0)
            for size in found.values()
            for other in fitting
        )
        if fitting and not agree:
            name, size = list(found.items())[-1]
            other, wanted = next(iter((rows or queries).items()))
            raise ShardingError(
                f"config: {numbers.heads} heads with {numbers.kv_heads} for keys "
                f"and values make these of {size} features in {name!r}, and heads of {wanted} in "
                f"{other!r}. Give the numbers of this layer; if layers differ, leave some 'whole'"
            )


def check_segments(placed: Mapping[str, Placed]) -> None:
    """Check that each "row" layer of an MLP takes as many features as a segment before it has.

    Raises:
        ShardingError: for a "column" layer whose segments fit none of its "row" layers.
    """
    columns: dict[str, dict[str, int]] = defaultdict(dict)
    rows: dict[str, dict[str, int]] = defaultdict(dict)
    for name, one in placed.items():
        rule = one.rule
        if rule is None or one.axis is None or len(one.shape) < 2 or rule.between_heads:
            continue
        if rule.gather or rule.scatter or rule.cut == "vocab":  # not followed by a "row" layer
            continue
        beside = (rows if rule.cut == "row" else columns)[_layer(name).rpartition(".")[0]]
        beside[name] = one.shape[one.axis] // len(rule.terms)
    for module, found in columns.items():
        taken = rows[module]
        for name, size in found.items():
            if taken and size not in taken.values():
                rule, (row, wanted) = placed[name].rule, next(iter(taken.items()))
                assert rule is not None
                raise ShardingError(
                    f"rules: {rule.features!r} makes {len(rule.terms)} of {size} features in "
                    f"{name!r}, and {row!r} takes {wanted}. Give a rule with the segments of this "
                    "layer; if the two are not one after the other, leave one 'whole'"
                )


def check_companions(placed: Mapping[str, Placed], numbers: Numbers) -> None:
    """Check that what belongs to a sharded weight, such as quantization scales, has a rule.

    So has what an attention module holds for each head, where its layers are cut between heads.

    Raises:
        ShardingError: for one that has none.
    """
    cut = {name for name, one in placed.items() if one.axis is not None}
    layers = set(map(_layer, cut))
    attentions = {
        _layer(name).rpartition(".")[0]
        for name in cut
        if (rule := placed[name].rule) and rule.between_heads
    }
    for name, one in placed.items():
        if one.rule is not None or math.prod(one.shape) <= 1:
            continue
        layer = name.rpartition(".")[0]
        if layer in attentions and math.prod(one.shape) in (numbers.heads, numbers.kv_heads):
            raise ShardingError(
                f"weights[{name!r}]: no rule names it, and it has a number for each head, between "
                "which the layers beside it are cut; give a "
                f"Rule({'.'.join(name.split('.')[-2:])!r}, …) that cuts it, or leave them 'whole'"
            )
        if layer in layers or not cut.isdisjoint(_prefixes(name)):
            raise ShardingError(
                f"weights[{name!r}]: no rule names it, and the layer that it belongs to is cut; "
                f"give a Rule({'.'.join(name.split('.')[-2:])!r}, …) that says how, or 'whole'"
            )


def _layer(name: str) -> str:
    layer, _, leaf = name.rpartition(".")
    return layer if leaf in LEAVES else name


def _prefixes(name: str) -> Iterator[str]:
    return (name[:at] for at, char in enumerate(name) if char in "._")


def _head_size(one: Placed, numbers: Numbers) -> int:
    assert one.rule is not None
    assert one.axis is not None
    assert numbers.heads is not None
    assert numbers.kv_heads is not None
    kv_heads = numbers.kv_heads
    both = numbers.heads + 2 * kv_heads
    counts = {"heads": numbers.heads, "kv_heads": kv_heads, "groups": both}
    return one.shape[one.axis] // sum(counts[term] for term in one.rule.terms)
