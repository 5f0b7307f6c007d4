"""Grid: every op on every framework's arrays beside its peers, in memcpys of the same round.

    python -m bench grid [--quick] [--family zips] [--op zip] [--threads 2] [--date 2026-01-31]

A row is an op, a framework, a dtype and a size. It is written as soon as it is measured, to a file
beside the results, which replaces them once every row is there; `--resume` continues such a file,
and `--seconds 100` stops in time for that. A call that took more than 40 memcpys at 64 MB is left
out at 512 MB.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench.compare import different
from bench.plan import FAMILIES, FULL, QUICK, Grid, left_out
from bench.record import Results, load, save
from bench.report import RESULTS, parser
from xlayout.bench.frameworks import installed
from xlayout.bench.machine import busy, machine, processors, use_threads
from xlayout.bench.rows import Key, Row, Work, measure, work
from xlayout.bench.tables import peaks_table, size_text, times_table

__all__ = ["fill", "main", "report", "start"]

UNFINISHED = 3


def main(arguments: Sequence[str]) -> int:
    """Measure, print, save; return 0 if every row is there, 3 if time ran out before some."""
    options = _options(arguments)
    use_threads(options.threads)  # frameworks count the processors when they start
    if warning := busy():
        print(warning, file=sys.stderr)
    path = options.out or RESULTS / f"{'quick' if options.quick else 'grid'}.json"
    grid = QUICK if options.quick else FULL
    families = options.family or FAMILIES
    try:
        grid = grid.only(options.op) if options.op else grid
        if not any(map(grid.keys, families)):
            raise ValueError(f"op: none of {options.op} is in the family {options.family}")
        growing = path.with_suffix(f".partial{path.suffix}")
        if growing.exists() and not options.resume and (options.op or options.family):
            raise ValueError(
                f"{growing} has rows of a run that was stopped; --resume goes on with it, and "
                "--out keeps these rows apart"
            )
        before = growing if options.resume and growing.exists() else path
        results = start(before, machine(options.threads), options.date, keep=options.keep)
        left = fill(
            grid, families, results, growing, resume=options.resume, seconds=options.seconds
        )
        if left:
            print(f"{left} rows to go; --resume goes on", file=sys.stderr)
            return UNFINISHED
        save(results, path)
        growing.unlink(missing_ok=True)
        text = report(results)
        path.with_suffix(".txt").write_text(f"{text}\n", "utf-8")
    except OSError as error:
        print(f"grid: {error}; --out names another file", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"grid: {error}", file=sys.stderr)
        return 2
    print(text)
    print(f"\nwritten to {path}, and as text beside it")
    _plot(path)
    return 0


def start(path: Path, here: dict[str, str], date: str, *, keep: bool) -> Results:
    """The results to add to: with `keep`, those in the file, otherwise none.

    Raises:
        ValueError: if the results to keep come from another machine or other versions, or the file
            holds something else, which the new results would replace.
    """
    new = Results(here, date)
    if not path.exists():
        return new
    found = load(path)
    if not keep:
        return new
    if why := different(found, new):
        raise ValueError(f"{path} is from elsewhere: {'; '.join(why)}. --out names another file")
    found.date = date or found.date
    return found


def fill(
    grid: Grid,
    families: Iterable[str],
    results: Results,
    path: Path,
    *,
    resume: bool,
    seconds: float = float("inf"),
) -> int:
    """Measure the rows of these families into the results and their file; return how many are left.

    Only installed frameworks have rows. After `seconds` no further row is begun, but at least one
    always is.

    Raises:
        OSError: if the file cannot be written; raised before anything is measured.
    """
    here = installed()
    keys = [key for family in families for key in grid.keys(family) if key[1] in here]
    order = [key for family in FAMILIES for some in (FULL, grid) for key in some.keys(family)]
    left = [key for key in keys if not (resume and key in results.rows)]
    for key in left:
        results.rows.pop(key, None)
    save(results, path)
    end = time.monotonic() + seconds
    run = _runner(grid, results)
    for number, key in enumerate(left):
        if number and time.monotonic() >= end:
            return len(left) - number
        print(f"{number + 1}/{len(left)} {_title(key)}", file=sys.stderr, flush=True)
        results.add(run(key))
        results.sort(order)
        save(results, path)
    return 0


def report(results: Results) -> str:
    """Every table of a run, then the targets, then the cells in which a peer is faster."""
    from bench.verdict import behind_table, targets_table

    texts = [", ".join(f"{name} {value}" for name, value in results.machine.items())]
    for family in results.families:
        rows = results.of(family)
        texts.append(str(times_table(family, rows)))
        peaks = peaks_table(f"{family}: memory", rows)
        texts += [str(peaks)] if peaks else []
    rows = list(results.rows.values())
    texts += [str(targets_table(rows)), str(behind_table(rows))]
    return "\n\n".join(texts)


def _options(arguments: Sequence[str]) -> Namespace:
    asked = parser("grid", __doc__)
    asked.add_argument("--quick", action="store_true", help="a few ops at 64 MB, two minutes")
    asked.add_argument(
        "--family", action="append", choices=FAMILIES, help="only this family; may be repeated"
    )
    asked.add_argument(
        "--op", action="append", help="only this op, as the tables name it; may be repeated"
    )
    asked.add_argument(
        "--threads",
        type=int,
        default=processors(),
        help="threads of every call; default: one per processor",
    )
    asked.add_argument("--date", default="", help="date to write into the results")
    asked.add_argument("--out", type=Path, help="default: bench/results/grid.json or quick.json")
    asked.add_argument(
        "--resume",
        action="store_true",
        help="continue a run: keep the rows that the file already has",
    )
    asked.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="stop after so many seconds; --resume continues",
    )
    options = asked.parse_args(arguments)
    options.keep = options.resume or bool(options.family or options.op)
    if options.out and options.out.suffix in {".txt", ".png"}:  # taken by the tables and pictures
        asked.error(f"--out: {options.out}; wanted a name that ends in .json")
    if not 1 <= options.threads <= processors():
        asked.error(f"--threads: {options.threads}; this machine has 1 to {processors()}")
    return options


def _runner(grid: Grid, results: Results) -> Callable[[Key], Row]:
    """A function that measures a row; consecutive rows share their elements where they can."""
    from bench.small import measure_small

    threads = int(results.machine["threads"])
    small = set(grid.keys("small calls"))
    held: dict[tuple[str, str, int], Work] = {}

    def run(key: Key) -> Row:
        op, framework, dtype, size = key
        settings = grid.settings(key, threads)
        if key in small:
            return measure_small(op, framework, settings)
        if (op, dtype, size) not in held:
            held.clear()
            held[op, dtype, size] = work(op, dtype, size)
        without = left_out(key, results.rows)
        return measure(held[op, dtype, size], framework, size, settings, without=without)

    return run


def _title(key: Key) -> str:
    op, framework, dtype, size = key
    return f"{op}, {framework}, {dtype}, {size_text(size)}"


def _plot(path: Path) -> None:
    from bench.plot import plot

    drawn = plot(path)
    print(f"drawn to {', '.join(map(str, drawn))}" if drawn else "no plot: that takes matplotlib")
