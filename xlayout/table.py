"""A table as a value: plain text by `str`, the same rows in colour where rich prints it.

Names come from untrusted files, so control characters are shown as escapes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["Table", "Tabled", "harmless"]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings, with remarks below.

    Args:
        title: One line above.
        columns: The headings; one that starts with ">" makes its column flush right.
        rows: The cells of each row, as text.
        notes: Lines below; one that starts with "!" is a warning.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", harmless(self.title))
        object.__setattr__(self, "notes", tuple(map(harmless, self.notes)))
        # Line breaks are escaped as well: a cell of several lines would look like several rows.
        cells = (tuple(harmless(cell, kept="") for cell in row) for row in self.rows)
        object.__setattr__(self, "rows", tuple(cells))

    def __str__(self) -> str:
        heads = [column.removeprefix(">") for column in self.columns]
        lines = [tuple(heads), *self.rows] if self.rows else []
        widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(heads))]
        body = [
            "  ".join(
                cell.rjust(width) if column.startswith(">") else cell.ljust(width)
                for cell, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for line in lines
        ]
        if body:
            body.insert(1, "  ".join("─" * width for width in widths))
        return "\n".join(
            [
                *([self.title] if self.title else []),
                *body,
                *(note.removeprefix("!") for note in self.notes),
            ]
        )

    def __rich__(self) -> Group:
        from rich import box
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
        for column in self.columns:
            grid.add_column(
                Text(column.removeprefix(">")),
                justify="right" if column.startswith(">") else "left",
                overflow="fold",
            )
        for row in self.rows:
            grid.add_row(*map(Text, row))
        notes = [
            Text(note.removeprefix("!"), style="yellow" if note.startswith("!") else "dim")
            for note in self.notes
        ]
        title = [Text(self.title, style="bold")] if self.title else []
        return Group(*title, *([grid] if self.rows else []), *notes)


class Tabled:
    """A value that is shown as a table: as text by `str`, in colour where rich prints it."""

    __slots__ = ()

    @abstractmethod
    def _table(self) -> Table: ...

    def __str__(self) -> str:
        return str(self._table())

    def __rich__(self) -> Table:
        return self._table()


def harmless(text: str, /, *, kept: str = "\n") -> str:
    r"""Return text with control characters escaped, except those to keep.

    >>> print(harmless("red\x1b[31m"))
    red\x1b[31m
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)
