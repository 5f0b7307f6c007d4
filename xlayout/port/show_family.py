"""Families and their rules as tables."""

from __future__ import annotations

from collections.abc import Iterable

from xlayout.errors import PortError
from xlayout.port.families import families, find_family
from xlayout.table import Table

__all__ = ["families_table", "rules_table"]


def families_table(dialect: str | None = None, /) -> Table:
    """Return the families, with what can be read and written, or those that have one dialect.

    Raises:
        PortError: No family has this dialect.
    """
    known = dict.fromkeys(key for family in families() for key in family.dialects)
    if dialect is not None and dialect not in known:
        raise _unknown(dialect, known)
    rows = tuple(
        (family.name, key, found.format, "yes" if found.format != "gguf" else "read only")
        for family in families()
        for key, found in family.dialects.items()
        if dialect in (None, key)
    )
    return Table("families", ("family", "dialect", "format", "written"), rows)


def rules_table(name: str, dialect: str, /) -> Table:
    """Return the rules between Hugging Face's names and one dialect's.

    Raises:
        PortError: There is no such family or dialect.
    """
    family = find_family(name)
    if dialect not in family.dialects:
        raise _unknown(dialect, family.dialects)
    rows = tuple(
        (
            rule.name,
            rule.target,
            rule.pattern + (f", {rule.part}" if rule.part else ""),
            f"× {rule.scale}" if rule.scale else "",
        )
        for rule in family.dialects[dialect].rules
    )
    return Table(f"{name}: hf ↔ {dialect}", ("hf", dialect, "layout", "values"), rows)


def _unknown(dialect: str, known: Iterable[str]) -> PortError:
    return PortError(f"to: {dialect!r}; {', '.join(known)} are known")
