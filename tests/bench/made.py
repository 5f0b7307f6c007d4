"""Made: results with the figures that a test asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bench.record import Results
from xlayout.bench.rows import Row
from xlayout.bench.timing import Timed

HERE = {"cpu": "a cpu", "cores": "2", "torch": "2.13.0", "threads": "2"}
MB = 1 << 20


def row(
    op: str = "zip",
    framework: str = "torch",
    dtype: str = "bfloat16",
    size: int = 64 * MB,
    *,
    family: str = "zips",
    unit: float = 1e-3,
    peaks: dict[str, float] | None = None,
    **times: float | tuple[float, float],
) -> Row:
    """A row; times by name with "_" for the blank, as a ratio or as ratio and spread."""
    pairs = {
        name.replace("_", " "): given if isinstance(given, tuple) else (given, 0.01)
        for name, given in times.items()
    }
    timed = {name: Timed(ratio, spread, ratio * unit, 9) for name, (ratio, spread) in pairs.items()}
    return Row(op, framework, dtype, size, family, unit, timed, peaks or {}, {})


def results(rows: Iterable[Row], **machine: Any) -> Results:
    """Results of these rows, from a machine that differs from the usual one where it is said."""
    return Results({**HERE, **machine}, "2026-01-31", {row.key: row for row in rows})
