"""Every name accounted for: the tensors that are there against the tensors the rules expect.

Nothing is skipped and nothing is invented. All mismatches are reported at once, with layers folded
into ranges, and for each unknown name the nearest one that would have been right.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from xlayout.errors import PortError
from xlayout.port.fold import fold, general
from xlayout.port.foreign import foreign
from xlayout.port.places import Place
from xlayout.port.rules import Sizes

if TYPE_CHECKING:
    from xlayout.port.family import Dialect, Family
    from xlayout.port.formats import TensorSpec

__all__ = ["account"]

_SHOWN = 12


def account(
    there: Mapping[str, TensorSpec],
    dialect: Dialect,
    family: Family,
    sizes: Sizes,
    /,
    *,
    absent: Container[str],
    doubles: Container[str] = (),
    where: str,
) -> tuple[list[Place], tuple[str, ...], tuple[str, ...]]:
    """Return every canonical tensor's place, the ignored names, and names that are not weights.

    Args:
        there: The checkpoint's tensors.
        dialect: The rules the names should follow: one of the family's, or one behind a prefix.
        family: The family, for hints.
        sizes: The model's sizes.
        absent: Canonical tensors that this model does not have, because its embeddings are tied.
        doubles: Tensors that repeat another one under a second name.
        where: The checkpoint, for the message.

    Raises:
        PortError: Names are missing or unexpected, or shapes are not what the config says.
    """
    places = dialect.places(sizes, absent)
    expected: dict[str, list[Place]] = {}
    for place in places:
        expected.setdefault(place.tensor, []).append(place)
    missing = [name for name in expected if name not in there]
    more = [name for name in there if name not in expected]
    ignored = {n: None for n in more if n in doubles or _matches(n, dialect.ignored)}
    others = {n: None for n in more if n not in ignored and _matches(n, dialect.other)}
    unexpected = [name for name in more if name not in ignored and name not in others]
    heads = {rule.target for rule in dialect.rules if rule.name in family.tied}
    problems = []
    if missing:
        tie = "or tie_word_embeddings: true in the config"
        hints = [f"{name} ({tie})" if name in heads else name for name in fold(missing)]
        problems.append(f"missing ({len(missing)}): {_listed(hints)}")
    if unexpected:
        kinds = _one_each(unexpected)
        kin = {key: d for key, d in family.dialects.items() if d.format == dialect.format}
        hints = _hints(kinds[:_SHOWN], expected, missing, sizes, kin)
        doubled = "tie_word_embeddings is true, and it is not the embedding once more"
        shown = [
            f"{name} ({doubled})" if name in heads else hint
            for name, hint in zip(kinds, hints, strict=False)
        ]
        problems.append(f"unexpected ({len(unexpected)}): {_listed([*shown, *kinds[_SHOWN:]])}")
        problems += [f"which are {kind}" for kind in foreign(kinds)]
    problems += _misshapen(there, expected, sizes)
    if problems:
        raise PortError(
            "\n  ".join([f"{where}: the tensors are not what the rules say:", *problems])
        )
    return places, tuple(ignored), tuple(others)


def _misshapen(
    there: Mapping[str, TensorSpec], expected: Mapping[str, Sequence[Place]], sizes: Sizes
) -> list[str]:
    """Return the first dozen wrong shapes, with layers folded into ranges."""
    odd: dict[str, list[str]] = {}
    for tensor, (place, *_) in expected.items():
        wanted = place.rule.target_shape(sizes)
        if tensor in there and there[tensor].shape != wanted:
            side = " ".join(f"({' '.join(group)})" for group in place.rule.sides[1])
            fault = f"shape {there[tensor].shape}; wanted {wanted} = {side}, by the config"
            fault += _of_vocabulary(place, there[tensor].shape, wanted)
            odd.setdefault(fault, []).append(tensor)
    shapes = [f"{name}: {fault}" for fault, tensors in odd.items() for name in fold(tensors)]
    more = [f"and {len(shapes) - _SHOWN} more shapes"] if len(shapes) > _SHOWN else []
    return shapes[:_SHOWN] + more


def _of_vocabulary(place: Place, shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Return what to do about a vocabulary that is padded, or otherwise larger than stated."""
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


def _matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of the patterns; `{layer}` is a number and `*` any text.

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
    """Return one of the names that differ only in a layer or an expert."""
    return list({general(name)[0]: name for name in names}.values())


def _hints(
    names: Sequence[str],
    expected: Iterable[str],
    missing: Sequence[str],
    sizes: Sizes,
    kin: Mapping[str, Dialect],
) -> list[str]:
    """Return unexpected names, each with what may be wrong with it."""
    wanted = missing or list(expected)
    known = {general(name)[0] for name in expected}
    few = _one_each(wanted)  # comparing with every expert of a large model takes minutes
    alike: dict[tuple[int, ...], list[str]] = {}
    for name in wanted:
        alike.setdefault(general(name)[1], []).append(name)
    spoken = {
        general(rule.target.format(layer=0, expert=0))[0]: key
        for key, dialect in kin.items()
        for rule in dialect.rules
    }
    hints = []
    for name in names:
        kind, numbers = general(name)
        if kind in spoken and kind not in known:
            hints.append(f"{name} (a name of {spoken[kind]}; wanted all names of one kind)")
        else:
            hints.append(_hint(name, known, [*alike.get(numbers, ()), *few], sizes))
    return hints


def _hint(name: str, known: Container[str], wanted: Sequence[str], sizes: Sizes) -> str:
    """Return a name with the layer or expert that is beyond the config's, or the nearest wanted."""
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
