"""Compare: two results of the grid, and what became slower or faster by more than the spread.

    python -m bench compare OLD.json NEW.json [--threshold 0.1] [--force]

The exit status is 0 if nothing of xlayout's is slower by more than the threshold, 1 if something
is, and 2 if the two cannot be compared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.record import Results, load
from bench.report import parser
from xlayout.bench.contest import NAMES
from xlayout.bench.rows import Key
from xlayout.bench.tables import size_text
from xlayout.bench.timing import Timed
from xlayout.table import Table

__all__ = ["Change", "changes", "different", "main"]

THRESHOLD = 0.10


@dataclass(frozen=True, slots=True)
class Change:
    """One call in both results.

    Args:
        key: the row.
        name: the call.
        old: its time before.
        new: its time now.
    """

    key: Key
    name: str
    old: Timed
    new: Timed

    @property
    def factor(self) -> float:
        """The new time divided by the old."""
        return self.new.ratio / self.old.ratio

    def slower(self, threshold: float) -> bool:
        """Whether the call became slower, by more than the threshold and more than both spreads."""
        apart = self.new.ratio - self.new.spread > self.old.ratio + self.old.spread
        return apart and self.factor > 1 + threshold

    def faster(self, threshold: float) -> bool:
        """Whether the call became faster, by the same two measures."""
        apart = self.new.ratio + self.new.spread < self.old.ratio - self.old.spread
        return apart and 1 / self.factor > 1 + threshold


def changes(old: Results, new: Results) -> list[Change]:
    """Every call that is in both results."""
    return [
        Change(key, name, old.rows[key].times[name], row.times[name])
        for key, row in new.rows.items()
        if key in old.rows
        for name in NAMES
        if name in row.times and name in old.rows[key].times
    ]


def different(old: Results, new: Results) -> list[str]:
    """Why the figures cannot be compared: another machine, other versions."""
    names = dict.fromkeys((*old.machine, *new.machine))
    return [
        f"{name}: {old.machine.get(name, 'unknown')}, then {new.machine.get(name, 'unknown')}"
        for name in names
        if old.machine.get(name) != new.machine.get(name)
    ]


def main(arguments: Sequence[str]) -> int:
    """Print what changed; return 1 if any call of xlayout's became slower."""
    asked = parser("compare", __doc__)
    asked.add_argument("old", type=Path, help="a result file of the grid")
    asked.add_argument("new", type=Path, help="a later one of the same machine")
    asked.add_argument(
        "--threshold",
        type=float,
        default=THRESHOLD,
        help="what counts as slower or faster, as a fraction (default: %(default)s)",
    )
    asked.add_argument(
        "--force", action="store_true", help="compare files of different machines or versions too"
    )
    options = asked.parse_args(arguments)
    if not options.threshold >= 0:  # also refuses nan, which no change would exceed
        asked.error(f"--threshold: {options.threshold}; wanted a fraction from 0 up, as 0.1")
    try:
        old, new = load(options.old), load(options.new)
    except (OSError, ValueError) as error:
        return _refused(str(error))
    if not options.force and (why := different(old, new)):
        return _refused(f"{'; '.join(why)}. --force compares them all the same")
    found = changes(old, new)
    if not found:
        return _refused(f"{options.old} and {options.new} have no row in common")
    ours = [change for change in found if change.name.startswith("xlayout")]
    slower = [change for change in ours if change.slower(options.threshold)]
    faster = [change for change in ours if change.faster(options.threshold)]
    peers = [change for change in found if change not in ours]
    moved = sum(c.slower(options.threshold) or c.faster(options.threshold) for c in peers)
    print(_table("slower", slower))
    print(_table("faster", faster))
    print(
        f"{len(ours)} calls of xlayout's in both: {len(slower)} slower, {len(faster)} faster, by "
        f"more than {options.threshold:.0%} and the spread. The peers' code is the same, and "
        f"{moved} of their {len(peers)} calls moved as far: that is the noise."
    )
    for which, one, other in (("old", old, new), ("new", new, old)):
        alone = len(one.rows.keys() - other.rows.keys())
        if alone:
            print(f"{alone} rows are in the {which} results only")
    return 1 if slower else 0


def _table(title: str, found: Iterable[Change]) -> Table:
    def figure(time: Timed) -> str:
        return f"{time.ratio:.2f} ±{time.spread:.2f}"

    lines = [
        (*c.key[:3], size_text(c.key[3]), c.name, figure(c.old), figure(c.new), f"{c.factor:.2f}")
        for c in sorted(found, key=lambda c: -abs(c.factor - 1))
    ]
    heads = ("op", "framework", "dtype", ">size", "call", ">old", ">new", ">×")
    return Table(title, heads, tuple(lines), () if lines else ("nothing",))


def _refused(why: str) -> int:
    print(f"compare: {why}", file=sys.stderr)
    return 2
