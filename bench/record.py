"""Record: the rows of a run and the machine they come from, in a file that grows row by row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xlayout.bench.rows import Key, Row

__all__ = ["Results", "load", "save", "write_rows", "write_whole"]

FORMAT = 1


@dataclass(slots=True)
class Results:
    """The results of one run.

    Args:
        machine: what the figures depend on besides the code.
        date: when, as given by the caller.
        rows: by their keys.
    """

    machine: dict[str, str]
    date: str
    rows: dict[Key, Row] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Add a row, replacing the one with the same key."""
        self.rows[row.key] = row

    def sort(self, keys: Iterable[Key]) -> None:
        """Put the rows in this order, and those with other keys after them."""
        order = dict.fromkeys((*(key for key in keys if key in self.rows), *self.rows))
        self.rows = {key: self.rows[key] for key in order}

    def of(self, family: str) -> list[Row]:
        """The rows of a family, in their order."""
        return [row for row in self.rows.values() if row.family == family]

    @property
    def families(self) -> list[str]:
        """The families that have rows."""
        return list(dict.fromkeys(row.family for row in self.rows.values()))


def save(results: Results, path: Path) -> None:
    """Write the results to a file, whole or not at all."""
    head = {"format": FORMAT, "date": results.date, "machine": results.machine}
    write_rows(path, head, [row.to_json() for row in results.rows.values()])


def write_rows(path: Path, head: dict[str, Any], rows: Iterable[Any]) -> None:
    """Write a JSON object with one line for each of its "rows", so that files can be diffed."""
    lines = ",\n  ".join(map(json.dumps, rows))
    write_whole(path, f'{json.dumps(head)[:-1]},\n "rows": [\n  {lines}\n]}}\n')


def write_whole(path: Path, text: str) -> None:
    """Write a file so that an interruption leaves either the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}")
    beside.write_text(text, "utf-8")
    beside.replace(path)


def load(path: Path) -> Results:
    """Read a file that `save` wrote.

    Raises:
        ValueError: for a file that holds something else, naming it.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']}")
        rows: Iterable[Row] = map(Row.from_json, found["rows"])
        read = Results(dict(found["machine"]), found["date"], {row.key: row for row in rows})
        times = [time for row in read.rows.values() for time in row.times.values()]
        if not all(time.ratio > 0 and time.spread >= 0 for time in times):
            raise ValueError("a time that is not above 0")
        return read
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: no results of `python -m bench grid` ({error}); wanted a file that it wrote"
        ) from error
