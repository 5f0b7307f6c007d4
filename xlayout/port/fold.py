"""Names folded: those that differ only in a layer or an expert become one, with their range."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest

__all__ = ["fold", "fold_counted", "general"]

_COUNTED = 8  # numbers in a name; a layer and an expert are two
_DIGITS = "(?:0|[1-9][0-9]{0,8})"  # no model has more; other digits would not come back from an int
_NUMBER = re.compile(rf"(?<=layers_){_DIGITS}(?=/)|(?<=\.){_DIGITS}(?=\.)")


def fold(names: Iterable[str], /) -> list[str]:
    """Fold names that differ only in a layer or an expert into one with a range.

    >>> fold(["blk.0.attn_q.weight", "blk.1.attn_q.weight", "output.weight"])
    ['blk.{0..1}.attn_q.weight', 'output.weight']
    >>> fold(["layers.0.experts.0.w1", "layers.1.experts.0.w1", "layers.1.experts.1.w1"])
    ['layers.0.experts.0.w1', 'layers.1.experts.{0..1}.w1']
    """
    return list(fold_counted(names))


def fold_counted(names: Iterable[str], /) -> dict[str, int]:
    """Fold names as `fold` does, and count those that each one stands for.

    >>> fold_counted(["blk.0.attn_q.weight", "blk.1.attn_q.weight", "output.weight"])
    {'blk.{0..1}.attn_q.weight': 2, 'output.weight': 1}
    """
    kinds: dict[tuple[str, int], tuple[str, list[tuple[int, ...]]]] = {}
    for name in names:
        kind, numbers = general(name)
        _, found = kinds.setdefault((kind, len(numbers)), (name, []))
        found.append(numbers)
    folded = {}
    for name, found in kinds.values():
        for box, count in _boxes(found):
            pieces = _NUMBER.split(name, _COUNTED)
            folded["".join(chain(*zip_longest(pieces, box, fillvalue="")))] = count
    return folded


def general(name: str, /) -> tuple[str, tuple[int, ...]]:
    """Return a name without its layer and expert, and their numbers.

    >>> general("model.layers.7.mlp.experts.3.up_proj.weight")
    ('model.layers.{}.mlp.experts.{}.up_proj.weight', (7, 3))
    """
    numbers = _NUMBER.findall(name)[:_COUNTED]
    return _NUMBER.sub("{}", name, count=_COUNTED), tuple(map(int, numbers))


def _boxes(found: Sequence[tuple[int, ...]]) -> list[tuple[tuple[str, ...], int]]:
    """Return boxes of ranges that together hold exactly these numbers, each with its size."""
    if not found[0]:
        return [((), 1)]
    rests: dict[int, list[tuple[int, ...]]] = {}
    for first, *rest in found:
        rests.setdefault(first, []).append(tuple(rest))
    alike: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for first, inner in rests.items():
        alike.setdefault(tuple(sorted(set(inner))), []).append(first)
    return [
        ((_ranges(firsts), *box), len(firsts) * count)
        for inner, firsts in alike.items()
        for box, count in _boxes(inner)
    ]


def _ranges(layers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for layer in sorted(layers):
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    if len(runs) == 1 and runs[0][0] == runs[0][1]:
        return str(runs[0][0])
    return "{" + ",".join(f"{a}..{b}" if a < b else str(a) for a, b in runs) + "}"
