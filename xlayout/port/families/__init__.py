"""The families that ship with xlayout; each module is data and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xlayout.errors import PortError
from xlayout.port.families.llama import LLAMA
from xlayout.port.families.mistral import MISTRAL, MIXTRAL
from xlayout.port.families.qwen import QWEN2, QWEN3, QWEN3_MOE
from xlayout.port.family import Family

__all__ = ["FAMILIES", "families", "family_of", "find_family"]

FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (LLAMA, MISTRAL, MIXTRAL, QWEN2, QWEN3, QWEN3_MOE)
}


def families() -> tuple[Family, ...]:
    """Return the families that can be ported, each with its dialects and rules.

    >>> [family.name for family in families()]
    ['llama', 'mistral', 'mixtral', 'qwen2', 'qwen3', 'qwen3-moe']
    """
    return tuple(FAMILIES.values())


def find_family(name: str | Family, /) -> Family:
    """Return the family that is given or named.

    Raises:
        PortError: There is no such family.
        TypeError: It is neither a family nor a name.
    """
    if isinstance(name, Family):
        return name
    given: Any = name  # callers may pass any type
    if not isinstance(given, str) or given not in FAMILIES:
        error = PortError if isinstance(given, str) else TypeError
        raise error(f"family: {given!r:.80}; known: {', '.join(FAMILIES)}; or give a Family")
    return FAMILIES[given]


def family_of(config: Mapping[str, Any], /) -> Family:
    """Return the family of a config's architecture.

    Raises:
        PortError: The config does not say which one it is.
    """
    named = config.get("architectures")
    named = [str(name) for name in named] if isinstance(named, list) else []
    for family in FAMILIES.values():
        if set(named).intersection(family.architectures):
            return family
    known = ", ".join(sum((family.architectures for family in FAMILIES.values()), ()))
    raise PortError(
        f"config: architectures is {named}; known are {known}. "
        f"If the tensors follow one of {', '.join(FAMILIES)}, name it with family= (--family)"
    )
