"""Edges: the cases of ops that add to arrays, or take from them, at one end."""

from __future__ import annotations

from xlayout.bench.case import WIDTH, Case
from xlayout.bench.hands import Cut, Pad
from xlayout.ops import pad, trim

__all__ = ["pad_columns", "pad_rows", "trim_columns"]

COLUMNS = 96  # more, or less, than a row has: no line of a row begins where it did
ROWS = 64  # of so many rows, one is added, as to a vocabulary that is to divide evenly


def pad_rows(count: int) -> Case:
    """Whole rows are added."""
    more = count // WIDTH // ROWS
    shape = (ROWS - 1) * more, WIDTH
    return Case(
        pad.layout(shape, to=ROWS * more),
        lambda x, **o: pad(x, to=ROWS * more, **o),
        Pad(0, more),
    )


def pad_columns(count: int) -> Case:
    """Every row becomes longer."""
    shape = count // WIDTH, WIDTH - COLUMNS
    return Case(
        pad.layout(shape, axis=1, to=WIDTH),
        lambda x, **o: pad(x, axis=1, to=WIDTH, **o),
        Pad(1, COLUMNS),
    )


def trim_columns(count: int) -> Case:
    """Every row becomes shorter."""
    shape = count // WIDTH, WIDTH
    return Case(
        trim.layout(shape, axis=1, to=WIDTH - COLUMNS),
        lambda x, **o: trim(x, axis=1, to=WIDTH - COLUMNS, **o),
        Cut(shape, 1, (WIDTH - COLUMNS,)),
    )
