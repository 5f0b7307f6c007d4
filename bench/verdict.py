"""Verdict: what the figures say against the targets, and every cell where a peer is faster."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.plan import SIZE
from xlayout.bench.rows import Key, Row
from xlayout.bench.tables import SMALL, size_text
from xlayout.bench.timing import Timed
from xlayout.table import Table

__all__ = ["LIMIT", "Behind", "behind", "behind_table", "targets_table"]

LIMIT = 1.10
"""Of the best peer: above it a cell is named."""

PEERS = {
    "xlayout reused": ("eager reused", "compiled reused"),
    "xlayout fresh": ("eager fresh", "compiled fresh", "einops fresh"),
    "xlayout compiled": ("compiled fresh",),
}
"""A call of ours, and the calls that do the same for the same user."""

LARGE = 64 << 20
"""Bytes from which a target in memcpys is meant."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A cell in which a peer is faster.

    Args:
        row: the row it is in.
        name: our call.
        peer: the fastest of that call's peers.
    """

    row: Row
    name: str
    peer: str

    @property
    def factor(self) -> float:
        """Our time divided by the peer's."""
        return self.row.times[self.name].ratio / self.row.times[self.peer].ratio

    @property
    def surely(self) -> bool:
        """Whether the two differ by more than both spreads."""
        ours, peer = self.row.times[self.name], self.row.times[self.peer]
        return ours.ratio - ours.spread > peer.ratio + peer.spread


def behind(rows: Iterable[Row]) -> list[Behind]:
    """Every cell above `LIMIT` times its best peer, the worst first."""
    found = []
    for row in rows:
        for name, peers in PEERS.items():
            there = [peer for peer in peers if peer in row.times]
            if name in row.times and there:
                best = min(there, key=lambda peer: row.times[peer].ratio)
                found.append(Behind(row, name, best))
    worst = sorted(found, key=lambda cell: -cell.factor)
    return [cell for cell in worst if cell.factor > LIMIT]


def behind_table(rows: Iterable[Row]) -> Table:
    """The same as a table; cells within the spread are marked."""
    rows = list(rows)
    lines = []
    for cell in behind(rows):
        row = cell.row
        ours, peer = row.times[cell.name], row.times[cell.peer]
        where = row.op, row.framework, row.dtype, size_text(row.size)
        small = row.size <= SMALL
        figures = (
            f"{cell.factor:.2f}",
            _figure(ours, small=small),
            f"{cell.peer} {_figure(peer, small=small)}",
        )
        lines.append((*where, cell.name, *figures, "" if cell.surely else "within the spread"))
    cells = sum(name in row.times for row in rows for name in PEERS)
    heads = ("op", "framework", "dtype", ">size", "call", ">× peer", ">ours", "best peer", "")
    return Table(
        f"cells above {LIMIT:.2f} of the best peer in the same framework",
        heads,
        tuple(lines),
        (f"{len(lines)} of {cells} cells; times in memcpys, of small calls in µs",),
    )


def _figure(time: Timed, *, small: bool) -> str:
    if not small:
        return f"{time.ratio:.2f} ±{time.spread:.2f}"
    scale = time.seconds / time.ratio * 1e6
    return f"{time.seconds * 1e6:.2f} ±{time.spread * scale:.2f} µs"


@dataclass(frozen=True, slots=True)
class _Target:
    """A family's target: its `values`, which `what` names, are to be at most `limit`."""

    what: str
    limit: float
    values: Mapping[Key, float]

    def line(self) -> tuple[str, ...]:
        worst = max(self.values, key=lambda key: self.values[key])
        met = sum(value <= self.limit for value in self.values.values())
        return (
            self.what,
            f"{self.limit:g}",
            f"{statistics.median(self.values.values()):.2f}",
            f"{self.values[worst]:.2f}",
            f"{worst[0]}, {worst[2]}, {size_text(worst[3])}",
            f"{met} of {len(self.values)}",
        )


_REUSED = {"rows": 1.10, "zips": 1.25, "transposes": 1.7}
_FRESH = {"rows": 2.2, "zips": 2.2, "transposes": 2.7}
_BYTES_REUSED = {"transposes": 2.1}


def targets_table(rows: Iterable[Row], loops: Iterable[Mapping[str, Any]] = ()) -> Table:
    """Each family and its target: median, worst, and how many cells reach it.

    `loops`: what `bench.overhead` measured for small calls, each repeated many times.
    """
    targets = (*_targets(list(rows)), *_looped(list(loops)))
    lines = [target.line() for target in targets if target.values]
    heads = ("target", ">at most", ">median", ">worst", "which is", ">met")
    return Table("against the targets", heads, tuple(lines))


def _targets(rows: list[Row]) -> Iterator[_Target]:
    large = [row for row in rows if row.size >= LARGE]
    for framework in ("torch", "numpy"):
        for family in _REUSED:
            own = [row for row in large if (row.family, row.framework) == (family, framework)]
            bytewise = _BYTES_REUSED.get(family)
            wide = [row for row in own if bytewise is None or row.dtype != "uint8"]
            narrow = [row for row in own if row not in wide]
            reused, fresh = "xlayout reused", "xlayout fresh"
            title = f"{family}, {framework}"
            yield _Target(f"{title}, reused", _REUSED[family], _ratios(wide, reused))
            if bytewise is not None:
                yield _Target(f"{title}, reused, 1 byte", bytewise, _ratios(narrow, reused))
            yield _Target(f"{title}, fresh", _FRESH[family], _ratios(own, fresh))
    torch = {row.key: row for row in large if row.framework == "torch"}
    for family in _REUSED:
        jax = [row for row in large if (row.family, row.framework) == (family, "jax")]
        yield _Target(
            f"{family}, inside jax.jit, relative to torch", 1.5, dict(_by_torch(jax, torch))
        )
    small = [row for row in rows if row.family == "small calls"]
    microseconds = {
        row.key: row.times["xlayout fresh"].seconds * 1e6
        for row in small
        if row.framework == "torch"
    }
    yield _Target("small calls, torch, µs", 2.0, microseconds)
    jitted = {
        row.key: row.times["xlayout fresh"].seconds / row.times["compiled fresh"].seconds
        for row in small
        if row.framework == "jax"
    }
    yield _Target("small calls, JAX, relative to a cached jit", 1.1, jitted)


def _looped(loops: list[Mapping[str, Any]]) -> Iterator[_Target]:
    def told(framework: str) -> dict[Key, Mapping[str, Any]]:
        own = [row for row in loops if row["framework"] == framework]
        return {(row["op"], framework, "float32", SIZE): row for row in own}

    microseconds = {key: row["xlayout"][0] for key, row in told("torch").items()}
    yield _Target("small calls over and over, torch, µs", 2.0, microseconds)
    jitted = {key: row["to_own"] for key, row in told("jax").items()}
    yield _Target("small calls over and over, JAX, relative to a cached jit", 1.1, jitted)


def _ratios(rows: Iterable[Row], name: str) -> dict[Key, float]:
    return {row.key: row.times[name].ratio for row in rows if name in row.times}


def _by_torch(jax: Iterable[Row], torch: Mapping[Key, Row]) -> Iterator[tuple[Key, float]]:
    """The op's time inside `jax.jit`, divided by its time on a torch tensor."""
    for row in jax:
        twin = torch.get((row.op, "torch", row.dtype, row.size))
        if twin and "xlayout compiled" in row.times:
            ratio = row.times["xlayout compiled"].ratio
            yield row.key, ratio / twin.times["xlayout fresh"].ratio
