"""Tables: rows of measurements as one reads them, in memcpys; small calls in microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xlayout.bench.contest import NAMES
from xlayout.bench.rows import Row
from xlayout.bench.timing import Timed
from xlayout.table import Table

__all__ = ["SMALL", "peaks_table", "size_text", "times_table"]

SMALL = 1 << 14
"""Bytes up to which the call is the cost, not the copy."""

_HEADS = {
    "xlayout reused": "reused: xlayout",
    "eager reused": "eager",
    "compiled reused": "compiled",
    "xlayout fresh": "fresh: xlayout",
    "eager fresh": "eager",
    "compiled fresh": "compiled",
    "einops fresh": "einops",
    "xlayout compiled": "xlayout in it",
}


def times_table(title: str, rows: Sequence[Row]) -> Table:
    """A line for each op, framework, dtype and size: median and spread of every call."""
    names = [name for name in NAMES if any(name in row.times for row in rows)]
    small = all(row.size <= SMALL for row in rows)
    lines = [
        (
            row.op,
            row.framework,
            row.dtype,
            size_text(row.size),
            f"{row.unit * (1e6 if small else 1e3):.2f}",
            *(_cell(row, name, small=small) for name in names),
        )
        for row in rows
    ]
    heads = ("op", "framework", "dtype", ">size", ">memcpy µs" if small else ">memcpy ms")
    left = sorted({why for row in rows for why in row.left_out.values()})
    notes = (
        "microseconds a call" if small else "time by that of a memcpy, median ± half the quartiles",
        *(f"–: left out, {why}" for why in left),
    )
    return Table(title, (*heads, *(f">{_HEADS[name]}" for name in names)), tuple(lines), notes)


def peaks_table(title: str, rows: Iterable[Row]) -> Table | None:
    """The most memory each call held beyond its input, the worst over dtypes and sizes."""
    worst: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        found = worst.setdefault((row.op, row.framework), {})
        for name, peak in row.peaks.items():
            found[name] = max(peak, found.get(name, 0.0))
    names = [name for name in NAMES if any(name in found for found in worst.values())]
    if not names:
        return None
    lines = [
        (*who, *(f"{found[name]:.2f}" if name in found else "" for name in names))
        for who, found in worst.items()
        if found
    ]
    heads = ("op", "framework", *(f">{_HEADS[name]}" for name in names))
    return Table(title, heads, tuple(lines), ("the most memory beyond the input, in inputs",))


def size_text(size: int) -> str:
    """A number of bytes.

    >>> size_text(1024), size_text(64 << 20)
    ('1 KB', '64 MB')
    """
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def _cell(row: Row, name: str, *, small: bool) -> str:
    if name in row.left_out:
        return "–"
    if name not in row.times:
        return ""
    time: Timed = row.times[name]
    value, scale = (time.seconds * 1e6, row.unit * 1e6) if small else (time.ratio, 1.0)
    digits = 2 if value < 20 else 1
    return f"{value:.{digits}f} ±{time.spread * scale:.{digits}f}"
