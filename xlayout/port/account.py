"""Every name accounted for: the tensors that are there against the tensors the rules expect.

Nothing is skipped and nothing is invented. All that does not fit is reported at once, layers
folded into ranges, each unknown name with the nearest name that would have been right.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from xlayout.errors import PortError
from xlayout.port.foreign import foreign
from xlayout.port.places import Place
from xlayout.port.rules import Sizes

if TYPE_CHECKING:
    from xlayout.port.family import Dialect
    from xlayout.port.formats import TensorSpec

__all__ = ["account", "fold", "general"]

_SHOWN = 12
_COUNTED = 8  # numbers in a name; a layer and an expert are two


def account(
    there: Mapping[str, TensorSpec],
    dialect: Dialect,
    sizes: Sizes,
    /,
    *,
    absent: Container[str],
    doubles: Container[str] = (),
    tied: Container[str] = (),
    kin: Mapping[str, Dialect] | None = None,
    where: str,
) -> tuple[list[Place], tuple[str, ...], tuple[str, ...]]:
    """Return the place of every canonical tensor, the names ignored, and those of other things.

    Args:
        there: The checkpoint's tensors.
        dialect: The rules the names should follow.
        sizes: The model's sizes.
        absent: Canonical tensors this model does not have.
        doubles: Names of what is there once more under another name.
        tied: Canonical tensors that a model with tied embeddings does not have.
        kin: Other rules that the format's files may follow, by their names: a hint says so.
        where: The checkpoint, for the message.

    Raises:
        PortError: Names are missing or unexpected, or shapes are not what the config says.
    """
    places = dialect.places(sizes, absent)
    expected: dict[str, list[Place]] = {}
    for place in places:
        expected.setdefault(place.tensor, []).append(place)
    ignored = {n: None for n in there if n in doubles or _matches(n, dialect.ignored)}
    others = {n: None for n in there if n not in ignored and _matches(n, dialect.other)}
    missing = [name for name in expected if name not in there]
    known = expected.keys() | ignored.keys() | others.keys()
    unexpected = [name for name in there if name not in known]
    problems = []
    if missing:
        heads = {rule.target for rule in dialect.rules if rule.name in tied}
        hints = [
            f"{name} (or tie_word_embeddings: true in the config)" if name in heads else name
            for name in fold(missing)
        ]
        problems.append(f"missing ({len(missing)}): {_listed(hints)}")
    if unexpected:
        kinds = _one_each(unexpected)
        heads = {rule.target for rule in dialect.rules if rule.name in absent}
        told = kinds[:_SHOWN]
        hints = [
            f"{name} (tie_word_embeddings is true, and it is not the embedding once more)"
            if name in heads
            else hint
            for name, hint in zip(told, _hints(told, expected, missing, sizes, kin), strict=True)
        ]
        hints += kinds[_SHOWN:]
        problems.append(f"unexpected ({len(unexpected)}): {_listed(hints)}")
        problems += [f"which are {kind}" for kind in foreign(kinds)]
    odd: dict[str, list[str]] = {}
    for tensor, (place, *_) in expected.items():
        wanted = place.rule.target_shape(sizes)
        if tensor in there and there[tensor].shape != wanted:
            side = " ".join(f"({' '.join(group)})" for group in place.rule.sides[1])
            fault = f"shape {there[tensor].shape}; wanted {wanted} = {side}, by the config"
            fault += _of_vocabulary(place, there[tensor].shape, wanted)
            odd.setdefault(fault, []).append(tensor)
    shapes = [f"{name}: {fault}" for fault, tensors in odd.items() for name in fold(tensors)]
    problems += shapes[:_SHOWN]
    if len(shapes) > _SHOWN:
        problems.append(f"and {len(shapes) - _SHOWN} more shapes")
    if problems:
        raise PortError(
            "\n  ".join([f"{where}: the tensors are not what the rules say:", *problems])
        )
    return places, tuple(ignored), tuple(others)


def _of_vocabulary(place: Place, shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Return what to do about a vocabulary that was padded, or is otherwise larger than said."""
    axes = place.rule.sides[1]
    if len(shape) != len(wanted):
        return ""
    odd = [axis for axis, n in enumerate(wanted) if shape[axis] != n]
    if len(odd) != 1 or axes[odd[0]] != ("vocab",) or shape[odd[0]] < wanted[odd[0]]:
        return ""
    return (
        f"; a vocabulary that was padded is ported with vocab_size: {shape[odd[0]]} in the config, "
        "and cut afterwards, as resize_token_embeddings of transformers does"
    )


def fold(names: Iterable[str], /) -> list[str]:
    """Fold names that differ only in a layer or an expert into one, with the range of them.

    >>> fold(["blk.0.attn_q.weight", "blk.1.attn_q.weight", "output.weight"])
    ['blk.{0..1}.attn_q.weight', 'output.weight']
    >>> fold(["layers.0.experts.0.w1", "layers.1.experts.0.w1", "layers.1.experts.1.w1"])
    ['layers.0.experts.0.w1', 'layers.1.experts.{0..1}.w1']
    """
    kinds: dict[tuple[str, int], tuple[str, list[tuple[int, ...]]]] = {}
    for name in names:
        kind, numbers = general(name)
        _, found = kinds.setdefault((kind, len(numbers)), (name, []))
        found.append(numbers)
    folded = []
    for name, found in kinds.values():
        for box in _boxes(found):
            pieces = _NUMBER.split(name, _COUNTED)
            folded.append("".join(chain(*zip_longest(pieces, box, fillvalue=""))))
    return folded


_NUMBER = re.compile(r"(?<=layers_)\d{1,9}(?=/)|(?<=\.)\d{1,9}(?=\.)")  # no model has more


def general(name: str, /) -> tuple[str, tuple[int, ...]]:
    """Return a name with its layer and expert taken out, and these.

    >>> general("model.layers.7.mlp.experts.3.up_proj.weight")
    ('model.layers.{}.mlp.experts.{}.up_proj.weight', (7, 3))
    """
    numbers = _NUMBER.findall(name)[:_COUNTED]
    return _NUMBER.sub("{}", name, count=_COUNTED), tuple(map(int, numbers))


def _boxes(found: Sequence[tuple[int, ...]]) -> list[tuple[str, ...]]:
    """Return ranges that together hold exactly these numbers: a box of them where they fill one."""
    if not found[0]:
        return [()]
    rests: dict[int, list[tuple[int, ...]]] = {}
    for first, *rest in found:
        rests.setdefault(first, []).append(tuple(rest))
    alike: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for first, inner in rests.items():
        alike.setdefault(tuple(sorted(set(inner))), []).append(first)
    return [(_ranges(firsts), *box) for inner, firsts in alike.items() for box in _boxes(inner)]


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


def _matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of the patterns, where `{layer}` is a number and `*` any text.

    >>> _matches("optimizer.state.exp_avg", ["optimizer.*"])
    True
    """
    return any(
        re.fullmatch(
            re.escape(pattern).replace(r"\{layer\}", r"\d+").replace(r"\*", ".*"),
            name,
            re.DOTALL,
        )
        for pattern in patterns
    )


def _one_each(names: Iterable[str]) -> list[str]:
    return list({general(name)[0]: name for name in names}.values())


def _hints(
    names: Sequence[str],
    expected: Iterable[str],
    missing: Sequence[str],
    sizes: Sizes,
    kin: Mapping[str, Dialect] | None,
) -> list[str]:
    wanted = missing or list(expected)
    known = {general(name)[0] for name in expected}
    few = _one_each(wanted)  # to compare with each of a model's many experts would take minutes
    alike: dict[tuple[int, ...], list[str]] = {}
    for name in wanted:
        alike.setdefault(general(name)[1], []).append(name)
    spoken = {
        general(rule.target.format(layer=0, expert=0))[0]: key
        for key, dialect in (kin or {}).items()
        for rule in dialect.rules
    }
    return [
        f"{name} (a name of {key}; wanted all names of one kind)"
        if (key := spoken.get(kind := general(name)[0])) and kind not in known
        else _hint(name, known, [*alike.get(general(name)[1], ()), *few], sizes)
        for name in names
    ]


def _hint(name: str, known: Container[str], wanted: Sequence[str], sizes: Sizes) -> str:
    kind, numbers = general(name)
    if numbers and kind in known:
        for number, what in zip(numbers, ("layer", "expert"), strict=False):
            if number >= (most := sizes.get(what, number + 1)):
                return f"{name} (the config has {most} {what}s, 0 to {most - 1})"
    near = difflib.get_close_matches(name, wanted, n=1, cutoff=0.6)
    return f"{name} (did you mean {near[0]}?)" if near else name


def _listed(names: Sequence[str]) -> str:
    more = f"; and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return "; ".join(names[:_SHOWN]) + more
