"""Page: the figures of the guide, from runs of the grid, so that they cannot drift from them.

python -m bench page

Beside small calls of `bench/results/grid.json` stand those of `overhead.json`, made over and over,
if they are of the same processor. Runs on other machines have a page of their own.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.plan import FAMILIES, FULL
from bench.record import Results, load
from bench.verdict import LARGE, PEERS, behind, targets_table
from xlayout.bench.rows import Row
from xlayout.bench.tables import SMALL, size_text
from xlayout.table import Table

__all__ = ["BEGIN", "END", "elsewhere", "figures", "looped", "main", "pages", "whole", "written"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "grid.json"
OTHERS = tuple(
    RESULTS.with_name(f"grid-{machine}-{family}.json")
    for machine, families in (
        ("xeon", ("zips", "transposes", "compounds", "rows")),
        ("avx2", ("zips", "transposes")),
    )
    for family in families
)
LOOPS = RESULTS.with_name("overhead.json")
PAGE = ROOT / "docs" / "guide" / "benchmarks.md"
ELSEWHERE = PAGE.with_name("benchmarks-elsewhere.md")
BEGIN = "<!-- figures: written by `python -m bench page` -->"
END = "<!-- end of figures -->"

Loops = Sequence[Mapping[str, Any]]
"""Rows of `bench.overhead`."""

_TOLD = {
    "torch": ("xlayout reused", "xlayout fresh", "xlayout compiled"),
    "jax": ("xlayout fresh", "xlayout compiled"),
    "numpy": ("xlayout reused", "xlayout fresh"),
}


def main(arguments: Sequence[str]) -> int:
    """Write the figures into their pages."""
    if arguments:
        print(__doc__)
        return 0 if arguments[0] in ("-h", "--help") else 2
    try:
        for path, text in pages().items():
            path.write_text(text, "utf-8")
            print(f"written to {path}")
    except (OSError, ValueError) as error:
        print(f"page: {error}", file=sys.stderr)
        return 2
    return 0


def pages() -> dict[Path, str]:
    """Path -> text of the pages, with the figures of the results; nothing is written."""
    run, others = whole(RESULTS), [whole(path, older=True) for path in OTHERS]
    told = {PAGE: figures(run, looped(LOOPS, run)), ELSEWHERE: elsewhere(*others)}
    return {path: written(path.read_text("utf-8"), text) for path, text in told.items()}


def whole(path: Path, *, older: bool = False) -> Results:
    """The results of a run of the whole grid; an older one may be without some of its ops.

    Raises:
        ValueError: if the results lack rows of the grid.
    """
    found = load(path)
    ops = {op for op, *_ in found.rows}
    keys = {key for family in FAMILIES for key in FULL.keys(family) if not older or key[0] in ops}
    if missing := len(keys - found.rows.keys()):
        raise ValueError(f"{path}: {missing} of {len(keys)} rows are not there; --resume the grid")
    return found


def looped(path: Path, results: Results) -> Loops:
    """What calls took when repeated; empty if this was measured on another processor."""
    found = json.loads(path.read_text("utf-8"))
    same = found["machine"]["cpu"] == results.machine["cpu"]
    return found["rows"] if same else ()


def written(page: str, text: str) -> str:
    """The page with this text between its two marks.

    Raises:
        ValueError: if the page lacks a mark.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no place for figures: {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def elsewhere(*runs: Results) -> str:
    """The figures of several runs, each under what it timed, its processor and its kernel."""
    return "\n\n".join(f"## {_head(run)}\n\n{figures(run)}" for run in runs)


def _head(run: Results) -> str:
    timed = ", ".join(run.families).capitalize()
    return f"{timed}: {run.machine['cpu']}, {run.machine['copy kernel']}"


def figures(results: Results, loops: Loops = ()) -> str:
    """All figures of a run, as Markdown."""
    rows = list(results.rows.values())
    machine = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    counts = ", ".join(f"{family} {len(results.of(family))}" for family in results.families)
    parts = [f"Measured {results.date} on: {machine}. Rows: {counts}."]
    large = [row for row in rows if row.size >= LARGE]
    for family in FAMILIES[:-1]:
        own = [row for row in large if row.family == family]
        parts += [f"### {family.capitalize()}", _markdown(_family(own))] if own else []
    calls = {(row.op, row.framework): _call(row) for row in rows if row.size <= SMALL}
    parts += ["### Small calls", _markdown(_micros(calls))] if calls else []
    # As in a loop over small arrays: each call directly follows another of its kind.
    again = {(row["op"], row["framework"]): _loop(row) for row in loops}
    parts += ["### The same over and over", _markdown(_micros(again))] if again else []
    targets = targets_table(rows, loops)
    parts += ["### Against the targets", _markdown(targets)] if targets.rows else []
    return "\n\n".join([*parts, "### Where a peer is faster", _behind(rows)])


def _family(rows: Sequence[Row]) -> Table:
    """Medians over dtypes and sizes from 64 MB on: xlayout, and the best peer of the same kind."""
    lines = []
    for op in dict.fromkeys(row.op for row in rows):
        cells = [op]
        for framework, names in _TOLD.items():
            own = [row for row in rows if (row.op, row.framework) == (op, framework)]
            cells += [_pair(own, name) for name in names]
        lines.append(tuple(cells))
    heads = ["op"]
    for framework, names in _TOLD.items():
        heads += [f">{framework}, {name.removeprefix('xlayout ')}" for name in names]
    return Table("", tuple(heads), tuple(lines))


def _pair(rows: Iterable[Row], name: str) -> str:
    """Our median, then the best peer's in brackets."""
    ours, peers = [], []
    for row in rows:
        if name in row.times:
            ours.append(row.times[name].ratio)
            peers += _best(row, name)
    if not ours:
        return ""
    best = f" ({statistics.median(peers):.1f})" if peers else ""
    return f"{statistics.median(ours):.2f}{best}"


def _best(row: Row, name: str) -> list[float]:
    times = [row.times[peer].ratio for peer in PEERS[name] if peer in row.times]
    return [min(times)] if times else []


def _micros(cells: Mapping[tuple[str, str], str]) -> Table:
    """Microseconds by op and framework: xlayout's, then the framework's own form's in brackets."""
    ops = dict.fromkeys(op for op, _ in cells)
    lines = ((op, *(cells.get((op, framework), "") for framework in _TOLD)) for op in ops)
    return Table("", ("op", *(f">{framework}" for framework in _TOLD)), tuple(lines))


def _call(row: Row) -> str:
    own = "compiled fresh" if row.framework == "jax" else "eager fresh"
    micros = {name: time.seconds * 1e6 for name, time in row.times.items()}
    return f"{micros['xlayout fresh']:.1f} ({micros[own]:.1f})"


def _loop(row: Mapping[str, Any]) -> str:
    own = "jit" if row["framework"] == "jax" else "hand"
    return f"{row['xlayout'][0]:.1f} ({row[own][0]:.1f})"


def _behind(rows: Iterable[Row]) -> str:
    """The cells in which a peer is faster by more than the spread, a line each."""
    cells = [cell for cell in behind(rows) if cell.surely]
    if not cells:
        return "Nowhere beyond the spread."
    lines = tuple(_line(cell.row, cell.name, cell.peer, cell.factor) for cell in cells)
    return _markdown(Table("", ("op", "on", ">call", ">× peer", "the peer"), lines))


def _line(row: Row, name: str, peer: str, factor: float) -> tuple[str, ...]:
    where = f"{row.framework}, {row.dtype}, {size_text(row.size)}"
    return row.op, where, name, f"{factor:.2f}", peer


def _markdown(table: Table) -> str:
    heads = [column.removeprefix(">") for column in table.columns]
    rules = ["--:" if column.startswith(">") else "---" for column in table.columns]
    return "\n".join(_bars((heads, rules, *table.rows)))


def _bars(lines: Iterable[Sequence[str]]) -> Iterator[str]:
    for line in lines:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
