"""Families and their rules as tables."""

from __future__ import annotations

from xlayout.errors import PortError
from xlayout.port.families import families, find_family
from xlayout.table import Table

__all__ = ["families_table", "rules_table"]


def families_table() -> Table:
    """Return the families, with what can be read and written."""
    rows = tuple(
        (family.name, key, dialect.format, "yes" if dialect.format != "gguf" else "read only")
        for family in families()
        for key, dialect in family.dialects.items()
    )
    return Table("families", ("family", "dialect", "format", "written"), rows)


def rules_table(name: str, dialect: str, /) -> Table:
    """Return the rules between Hugging Face's names and one dialect's.

    Raises:
        PortError: There is no such family or dialect.
    """
    family = find_family(name, {})
    if dialect not in family.dialects:
        raise PortError(f"to: {dialect!r}; {', '.join(family.dialects)} are known")
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
