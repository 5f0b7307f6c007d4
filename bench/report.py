"""Report: a table on the screen, the same rows as JSON, and the machine they come from."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.record import write_rows
from xlayout.bench.frameworks import installed
from xlayout.bench.machine import machine
from xlayout.table import Table

__all__ = ["chosen", "count", "parser", "save", "show"]

RESULTS = Path(__file__).parent / "results"


def count(text: str) -> int:
    """A whole number of at least 1, as an option of a command.

    >>> count("3")
    3
    """
    try:
        if (found := int(text)) >= 1:
            return found
    except ValueError:
        pass
    raise ArgumentTypeError(f"{text}; wanted a whole number from 1 up")


def parser(name: str, text: str | None) -> ArgumentParser:
    """The parser of `python -m bench <name>`; its help begins with the module's first line."""
    return ArgumentParser(
        prog=f"python -m bench {name}", description=(text or "").partition("\n")[0]
    )


def chosen(asked: ArgumentParser, only: str | None, frameworks: Iterable[str]) -> list[str]:
    """The frameworks that are installed, or only the one asked for; if it is not there, an exit."""
    here = [name for name in frameworks if name in installed()]
    if only is None:
        return here
    if only not in here:
        asked.error(f"--only: {only} is not installed; there are {', '.join(here)}")
    return [only]


def save(name: str, rows: list[dict[str, Any]]) -> Path:
    """Write the rows and the machine to `bench/results/<name>.json`."""
    path = RESULTS / f"{name}.json"
    write_rows(path, {"machine": machine()}, rows)
    return path


def show(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table with figures from the third column on."""
    heads = (*header[:2], *(f">{name}" for name in header[2:]))
    print(Table(title, heads, tuple(rows)))
