"""Which of a family's dialects a checkpoint speaks, and which prefix its names have.

The names tell; if they do not, as in MaxText's trees, the config must, because a dialect is never
guessed. Wrappers put a prefix before all names of a model (`module.`, `_orig_mod.`), and so does
code that saves it as a part of something (`app.model.`). Any prefix is accepted that leaves no name
unaccounted for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

from xlayout.errors import PortError
from xlayout.port.configs import section
from xlayout.port.family import Dialect, Family
from xlayout.port.formats import Source
from xlayout.port.places import Place

__all__ = ["spoken"]

_DEEPEST = 8  # words of a prefix; a hostile name may have any number
_PREFIX = re.compile(r"[\w.]*")  # anything else would be read as part of a rule


def spoken(family: Family, source: Source, config: Mapping[str, Any], /) -> tuple[str, Dialect]:
    """Return what a plan calls the dialect that a checkpoint speaks, and the dialect.

    Raises:
        PortError: The family has none for the format, or the config does not say which it is.
    """
    form = source.format
    known = {key: d for key, d in family.dialects.items() if d.format == form}
    if not known:
        have = ", ".join(dict.fromkeys(d.format for d in family.dialects.values()))
        raise PortError(f"family: {family.name!r} has no rules for {form}; it has {have}")
    if named := {key: d for key, d in known.items() if not d.config}:
        return _by_names(named, source.tensors)
    said = section(config, form)
    for key, dialect in known.items():
        if all(said.get(key) == value for key, value in dialect.config.items()):
            return key, dialect
    wanted = "; ".join(f"{key}: {dict(dialect.config)}" for key, dialect in known.items())
    raise PortError(
        f"config: {form!r} is {said!r}; it must say how the tree is laid out, as one of: {wanted}"
    )


def _by_names(named: Mapping[str, Dialect], names: Iterable[str]) -> tuple[str, Dialect]:
    """Return the dialect with the most names present, judged by the first layer and expert."""
    speakers: dict[str, dict[str, None]] = {}
    for key, dialect in named.items():
        for rule in dialect.rules:
            speakers.setdefault(Place(rule, layer=0, expert=0).tensor, {})[key] = None
    heard: Counter[tuple[str, str]] = Counter()
    for name in names:
        pieces = re.split(r"(?<=\.)", name, maxsplit=_DEEPEST)
        for prefix in accumulate(pieces[:-1], initial=""):
            for key in speakers.get(name[len(prefix) :], ()):
                heard[prefix, key] += 1
    # Among equally good prefixes take the shortest: the model itself, not a copy of it.
    order = {key: k for k, key in enumerate(named)}
    prefix, key = min(
        (found for found in heard if _PREFIX.fullmatch(found[0])),
        key=lambda found: (-heard[found], len(found[0]), order[found[1]]),
        default=("", next(iter(named))),
    )
    if not prefix:
        return key, named[key]
    levels = ["", *accumulate(re.split(r"(?<=\.)", prefix)[:-1])]
    beside = dict.fromkeys(each for dialect in named.values() for each in dialect.other)
    other = tuple(level + each for level in levels for each in beside)
    return f"{key} behind {prefix!r}", replace(named[key].behind(prefix), other=other)
