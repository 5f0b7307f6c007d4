"""Report: a table on the screen, the same rows as JSON, and the machine they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.record import write_rows
from xlayout.bench.machine import machine

__all__ = ["machine", "save", "show"]

RESULTS = Path(__file__).parent / "results"


def save(name: str, rows: list[dict[str, Any]]) -> Path:
    """Write the rows and the machine to `bench/results/<name>.json`."""
    path = RESULTS / f"{name}.json"
    write_rows(path, {"machine": machine()}, rows)
    return path


def show(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A table: rich's where it is installed, else plain columns."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        print(title)
        for row in (header, *rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
        return
    table = Table(title=title, box=box.SIMPLE)
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number > 1 else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console()
    Console(width=None if console.is_terminal else 130).print(table)
