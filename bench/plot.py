"""Plot: a run of the grid as pictures, an op a line, a framework a panel, a call a mark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.record import Results, load
from xlayout.bench.rows import Row
from xlayout.bench.tables import SMALL, size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["figures", "plot"]

SIZE = 64 << 20
DTYPE = "bfloat16"

# Okabe and Ito's colours, which colour-blind readers can tell apart; the shapes differ too.
MARKS = {
    "xlayout": ("#D55E00", "o"),
    "eager": ("#0072B2", "s"),
    "compiled": ("#009E73", "^"),
    "einops": ("#56B4E9", "D"),
    "xlayout, compiled": ("#E69F00", "v"),
}
LINE = 0.5
TOP = -3.6
"""Lines of ops: one of text, and the room above the first op."""

INK, FAINT = "#222222", "#DDDDDD"


@dataclass(frozen=True, slots=True)
class Panel:
    """One framework and one kind of output: mark -> the call that it shows."""

    framework: str
    title: str
    calls: dict[str, str]


FRESH = {"xlayout": "xlayout fresh", "eager": "eager fresh", "compiled": "compiled fresh"}
REUSED = {"xlayout": "xlayout reused", "eager": "eager reused", "compiled": "compiled reused"}
EINOPS = {"einops": "einops fresh"}
INSIDE = {"xlayout, compiled": "xlayout compiled"}

LARGE = (
    Panel("torch", "torch, into out=", REUSED),
    Panel("torch", "torch, fresh", FRESH | EINOPS),
    Panel("jax", "JAX, fresh", FRESH | EINOPS | INSIDE),
    Panel("numpy", "numpy, into out=", REUSED),
    Panel("numpy", "numpy, fresh", FRESH | EINOPS),
)
CALLS = tuple(
    Panel(panel.framework, panel.title, {k: v for k, v in panel.calls.items() if k not in INSIDE})
    for panel in LARGE
)


def plot(path: Path) -> list[Path]:
    """Draw a file of results, beside it; nothing if matplotlib is not installed.

    `<name>.png`: the ops at 64 MB in memcpys. `<name>-calls.png`: calls on 1 KB in microseconds.
    """
    if not find_spec("matplotlib"):
        return []
    drawn = []
    for suffix, made in figures(load(path)).items():
        drawn.append(path.with_name(f"{path.stem}{suffix}.png"))
        made.savefig(drawn[-1], dpi=110)
    return drawn


def figures(results: Results) -> dict[str, Figure]:
    """The pictures of a run, by the ends of their names."""
    rows = list(results.rows.values())
    large = [row for row in rows if row.size >= SIZE]
    small = [row for row in rows if row.size <= SMALL]
    made = {}
    if any((row.size, row.dtype) == (SIZE, DTYPE) for row in large):
        title = (
            f"Time by that of a memcpy of as many bytes: {DTYPE}, {size_text(SIZE)}. "
            "Lines span the other dtypes, and larger arrays."
        )
        made[""] = _figure(title, LARGE, large, results, unit=None)
    if small:
        title = f"Microseconds a call on {size_text(small[0].size)}"
        made["-calls"] = _figure(title, CALLS, small, results, unit=1e6)
    return made


def _figure(
    title: str,
    panels: Sequence[Panel],
    rows: Sequence[Row],
    results: Results,
    *,
    unit: float | None,
) -> Figure:
    from matplotlib.figure import Figure

    ops = list(dict.fromkeys(row.op for row in rows))
    here = {row.framework for row in rows}
    panels = [panel for panel in panels if panel.framework in here]
    size = 2.5 * len(panels) + 1.8, 0.32 * len(ops) + 2.3
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for panel, on in zip(panels, axes, strict=True):
        _panel(on, panel, ops, [row for row in rows if row.framework == panel.framework], unit)
    families = {row.op: row.family for row in rows}
    for line in range(1, len(ops)):
        if families[ops[line]] != families[ops[line - 1]]:
            for on in axes:
                on.axhline(line - 0.5, color=FAINT, linewidth=0.6)
    axes[0].set_yticks(range(len(ops)), ops)
    low, high = axes[0].get_xlim()
    axes[0].set_xlim(low / 1.3, high * 1.1)
    axes[0].set_ylim(len(ops) - 0.4, TOP)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, color=INK)
    where = ("cpu", "threads", "torch", "jax", "numpy", "einops", "copy kernel")
    told = [f"{name} {results.machine[name]}" for name in where if name in results.machine]
    text = ", ".join([*told, *([results.date] if results.date else [])])
    figure.supxlabel(text, x=0.01, ha="left", fontsize=8, color="#666666")
    return figure


def _panel(on: Axes, panel: Panel, ops: Sequence[str], rows: Iterable[Row], unit: Any) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    on.set_xscale("log")
    on.set_title(panel.title, fontsize=10.5, loc="left", color=INK)
    on.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    on.xaxis.set_major_formatter("{x:g}")
    on.xaxis.set_minor_locator(NullLocator())
    on.tick_params(length=0, labelsize=9.5, labelcolor=INK)
    for side in on.spines.values():
        side.set_visible(False)
    on.grid(axis="x", color=FAINT, linewidth=0.6)
    if unit is None:
        on.axvline(1.0, color=INK, linewidth=1.2)
        on.text(1.0, TOP + 0.1, " memcpy", fontsize=8.5, va="top", color=INK)
    rows = list(rows)
    firsts = {}
    for lane, (mark, call) in enumerate(panel.calls.items()):
        offset = 0.12 * (lane - (len(panel.calls) - 1) / 2)
        first = _marks(on, mark, call, ops, rows, unit, offset)
        if first is not None:
            firsts[mark] = first
    # The names stand above the first marks, each on its own line, so that none hides another.
    for level, mark in enumerate(sorted(firsts, key=lambda mark: firsts[mark])):
        y = -0.6 - LINE * level
        on.text(
            firsts[mark],
            y,
            mark,
            fontsize=8.5,
            ha="center",
            va="bottom",
            color=MARKS[mark][0],
            bbox={"color": "white", "pad": 0.5},
        )


def _marks(
    on: Axes,
    mark: str,
    call: str,
    ops: Sequence[str],
    rows: Sequence[Row],
    unit: float | None,
    offset: float,
) -> float | None:
    """Put a mark on each op's line; return where the first one is."""
    colour, shape = MARKS[mark]
    first = None
    for line, op in enumerate(ops):
        own = [row for row in rows if row.op == op and call in row.times]
        shown = [row for row in own if unit or (row.size, row.dtype) == (SIZE, DTYPE)]
        if not shown:
            continue
        values = [_value(row, call, unit) for row in own]
        at, y = _value(shown[0], call, unit), line + offset
        on.plot([min(values), max(values)], [y, y], color=colour, alpha=0.45, linewidth=1.5)
        on.plot([at], [y], shape, color=colour, markersize=5, markeredgewidth=0)
        first = at if first is None else first
    return first


def _value(row: Row, call: str, unit: float | None) -> float:
    time = row.times[call]
    return time.seconds * unit if unit else time.ratio
