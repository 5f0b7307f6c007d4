"""Bytes and seconds of resharding, beside the lower bound, XLA and DTensor.

    python -m bench sharding [--save]

Bytes are those that a device receives on average, as multiples of what it needs and does not have.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from bench.report import parser, save, show
from bench.sharding_bytes import CONTENDERS, bound
from bench.sharding_cases import AWKWARD, CASES
from bench.sharding_seconds import SHAPES, measured
from xlayout import Layout, Mesh, Sharding

MIB = 2**20


def cases() -> list[dict[str, Any]]:
    """The layouts that compilers get wrong, one row each."""
    named = {**{name: case[:3] for name, case in CASES.items()}, **AWKWARD}
    rows = []
    for name, case in named.items():
        needed = bound(case)
        moved = {who: count(case) for who, count in CONTENDERS.items()}
        assert moved["xlayout"] == needed, name
        rows.append({"case": name, "bound": needed, **moved})
    return rows


def reshards() -> list[dict[str, Any]]:
    """All reshards between specs of a (2, 4) grid, summed up in one row for each contender."""
    grid = Mesh((2, 4), ("fsdp", "tp"))
    entries = [(), ("fsdp",), ("tp",), ("fsdp", "tp"), ("tp", "fsdp")]
    specs = [s for s in itertools.product(entries, repeat=2) if not {*s[0]} & {*s[1]}]
    # Large, so that DTensor's planner weighs bytes more than the number of messages.
    layout = Layout.identity((2048, 2048))
    pairs = [(layout, Sharding(grid, a), Sharding(grid, b))
             for a, b in itertools.permutations(specs, 2)]  # fmt: skip
    needed = [bound(pair) for pair in pairs]
    rows = []
    for who, count in CONTENDERS.items():
        moved = [count(pair) or 0.0 for pair in pairs]
        ratios = [m / n for m, n in zip(moved, needed, strict=True) if n]
        rows.append({
            "contender": who,
            "reshards": len(pairs),
            "in all": round(sum(moved) / sum(needed), 3),
            "median": round(statistics.median(ratios), 3),
            "worst": round(max(ratios), 3),
            "needless": sum(m > 0 for m, n in zip(moved, needed, strict=True) if not n),
        })  # fmt: skip
    return rows


def _times(moved: float | None, needed: float) -> str:
    if moved is None:
        return "cannot"
    if needed:
        return f"{moved / needed:.2f}"
    return f"{moved / MIB:.2f} MiB for 0" if moved else "0"


def main(arguments: Sequence[str]) -> int:
    """Print the tables, and save them if asked to."""
    asked = parser("sharding", __doc__)
    asked.add_argument(
        "--save", action="store_true", help="write the rows into bench/results/sharding.json too"
    )
    options = asked.parse_args(arguments)
    whole = reshards()
    show(
        f"{whole[0]['reshards']} reshards between specs on a 2 x 4 mesh, in lower bounds",
        ("contender", "in all", "median", "worst", "needless moves"),
        [(r["contender"], f"{r['in all']:.2f}", f"{r['median']:.2f}", f"{r['worst']:.2f}",
          str(r["needless"])) for r in whole],
    )  # fmt: skip
    each = cases()
    show(
        "layouts between shardings: MiB that a device needs, and what moves, in units of it",
        ("case", "bound", *CONTENDERS),
        [(r["case"], f"{r['bound'] / MIB:.3g}", *(_times(r[who], r["bound"]) for who in CONTENDERS))
         for r in each],
    )  # fmt: skip
    seconds = [row for shape in SHAPES for row in measured(shape)]
    show(
        "on 4 gloo ranks, milliseconds",
        ("case", "KiB", "xlayout", "by one collective", "DTensor", "DTensor by xlayout"),
        [(r["case"], str(r["bytes"] >> 10), f"{r['xlayout'] * 1e3:.1f}",
          f"{r['xlayout, collective'] * 1e3:.1f}",
          f"{r['DTensor'] * 1e3:.1f}" if "DTensor" in r else "cannot",
          f"{r['DTensor'] / r['xlayout']:.1f}" if "DTensor" in r else "") for r in seconds],
    )  # fmt: skip
    if options.save:
        print("rows in", save("sharding", [*whole, *each, *seconds]))
    return 0
