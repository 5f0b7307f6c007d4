"""Report of a run on a GPU: one table, what misses its target, and the file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.gpu.ask import ROOT
from bench.record import write_whole
from xlayout.bench.cases import CASES
from xlayout.table import Table

__all__ = ["file_of", "misses", "record", "table"]

COLUMNS = {
    ("torch", "xlayout"): "torch: xlayout",
    ("torch", "eager"): "eager",
    ("torch", "compiled"): "compiled",
    ("torch", "batch"): "batch",
    ("torch", "apply_many"): "apply_many",
    ("torch", "each"): "one by one",
    ("jax", "xlayout"): "jax: xlayout",
    ("jax", "jit"): "jit",
    ("jax", "pallas"): "pallas",
    ("jax", "by torch"): "by torch",
}
"""(framework, call) -> heading."""

WANTED = {"rows": 0.95, "zips": 0.85, "transposes": 0.85}
"""Family -> the share of a copy's speed that xlayout's call should have in torch; 0 of others."""

STATE = 1 / 1.2
"""The same for a state dict, both prepared and by the call that prepares it."""

Rows = Sequence[Mapping[str, Any]]


def table(rows: Rows, *, cuda: bool) -> Table:
    """A line for each op, dtype and size; a cell for each way to run it."""
    lines: dict[tuple[str, str, int], dict[str, str]] = {}
    for row in rows:
        cells = lines.setdefault((row["op"], row["dtype"], row["mib"]), {})
        for name, figure in row.get("calls", {}).items():
            heading = COLUMNS[row["framework"], name]
            if isinstance(figure, str):
                cells.setdefault(heading, "fails")
            elif row["part"] != "compiled" or name == "compiled":
                cells[heading] = f"{figure['share']:.2f} ±{figure['spread']:.2f}"
    heads = [head for head in COLUMNS.values() if any(head in cells for cells in lines.values())]
    body = tuple(
        (op, dtype, f"{mib} MB", *(cells.get(head, "") for head in heads))
        for (op, dtype, mib), cells in lines.items()
    )
    notes = ["on a CPU, where only the answers mean something"]
    if cuda:
        unit = "a device-to-device copy of the same bytes"
        notes = [f"share of the speed of {unit}, median ± half quartiles", *_hosts(rows)]
    tuned = (
        f"tuned: {row['op']}, {row['dtype']}: {row['tuned']}" for row in rows if "tuned" in row
    )
    return Table(
        "Speed", ("op", "dtype", ">size", *(f">{head}" for head in heads)), body, (*notes, *tuned)
    )


def _hosts(rows: Rows) -> Iterable[str]:
    """How long calls keep the host, without waiting for the device."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["op"] in CASES and row["part"] != "compiled":
            for name, figure in row.get("calls", {}).items():
                if not isinstance(figure, str):
                    found.setdefault(COLUMNS[row["framework"], name], []).append(figure["host"])
    if found:
        each = (f"{name} {median(some) * 1e6:.0f}" for name, some in found.items())
        yield f"median time that a call keeps its host, in us: {', '.join(each)}"


def misses(rows: Rows) -> Iterable[str]:
    """A line for each figure below its target, with both numbers."""
    for row in rows:
        if row.get("framework") != "torch" or row["part"] == "compiled":
            continue
        where = f"{row['op']}, {row['dtype']}, {row['mib']} MB"
        known = row["op"] in CASES
        wanted = WANTED.get(CASES[row["op"]].family, 0.0) if known else STATE
        for name in ("xlayout",) if known else ("batch", "apply_many"):
            figure = row["calls"].get(name, f"no {name}")
            if isinstance(figure, str):
                yield f"misses: {where}: {figure}"
            elif figure["share"] < wanted:
                yield f"misses: {where}: {name} {figure['share']:.2f}; wanted {wanted:.2f}"


def file_of(device: str) -> Path:
    """Where the runs on a device are recorded."""
    name = "".join(c if c.isalnum() else "-" for c in device.lower())
    return ROOT / "bench" / "results" / f"gpu-{name}.json"


def takes_record(file: Path) -> bool:
    """Whether nothing is at this path, or what `record` wrote there, even if it was cut off."""
    try:
        found = file.read_text("utf-8")
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return not found or found.startswith('{\n "when": ')


def record(file: Path, where: dict[str, Any], answers: dict[str, Any], rows: Rows) -> None:
    """Write the run to a file; parts that were not run again stay if the versions are the same.

    A version that this run does not know, such as JAX's if it does not start, is not compared.
    """
    before = _before(file)
    if any(before.get(key, value) != value for key, value in where.items()):
        before = {}
    parts = {row["part"] for row in rows}
    kept = [row for row in before.get("rows", ()) if row["part"] not in parts]
    run = {
        **before,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **where,
        "cases": before.get("cases", {}) | answers,
        "rows": [*kept, *rows],
    }
    told = json.dumps(run, indent=1).replace(f"{ROOT}/", "")  # the paths in tracebacks
    write_whole(file, told + "\n")


def _before(file: Path) -> dict[str, Any]:
    """What the file holds; a missing or truncated one holds nothing."""
    try:
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found
