"""What a call costs on 1 KB: xlayout, the hand-written form, einops and a cached `jax.jit`.

    python -m bench overhead [--rounds 50] [--only torch] [--op interleave]

At this size the call is the cost, not the copy. All contenders of an op take turns within a round,
so that a slow moment of the machine hits each of them; a figure is the median over the rounds, and
the spread is half the distance between the quartiles. Every answer is checked before it is timed.
Results are fresh row-major memory for all (einops is made to copy where it returns a view).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import numpy as np
import torch

from bench.contenders import CONTENDERS, OPS, cached_jit, flattened, given
from bench.report import count, save, show
from xlayout.bench.timing import spread_of

LIMITS = {"numpy": 3.0, "torch": 2.0, "jax": 1.5}
"""Of the hand-written form; of the cached `jax.jit` call in JAX. And never above einops."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Microseconds per call."""

    median: float
    spread: float


def check(name: str, made: Any, wanted: Any) -> None:
    """Both are the same arrays."""
    for ours, other in zip(flattened(made), flattened(wanted), strict=True):
        assert ours.shape == other.shape, f"{name}: {ours.shape}, wanted {other.shape}"
        assert np.array_equal(ours, other), f"{name}: wrong answer"


def timed(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Timed]:
    """Every contender in every round, each as often as fits in a fifth of a millisecond."""
    counts = {name: max(3, int(2e-4 / _once(call))) for name, call in calls.items()}
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            spent[name].append(_loop(call, counts[name]) / counts[name] * 1e6)
    return {name: Timed(statistics.median(us), spread_of(us)) for name, us in spent.items()}


def _once(call: Callable[[], Any]) -> float:
    _loop(call, 20)
    return _loop(call, 20) / 20


def _loop(call: Callable[[], Any], count: int) -> float:
    start = perf_counter()
    for _ in range(count):
        made = call()
    jax.block_until_ready(made)
    return perf_counter() - start


def contenders(op: str, framework: str) -> dict[str, Callable[[], Any]]:
    """The calls to time, each seen to give the right answer."""
    inputs, wanted = OPS[op]
    args = given(framework, inputs)
    forms = dict(CONTENDERS[framework][op])
    if framework == "jax":
        forms["jit"] = cached_jit(forms["hand"], len(args))
    calls = {name: lambda form=form: form(*args) for name, form in forms.items()}
    for name, call in calls.items():
        check(f"{op}, {framework}, {name}", call(), wanted)
    return calls


def row(op: str, framework: str, rounds: int) -> dict[str, Any]:
    """One line of the table."""
    calls = contenders(op, framework)
    found = timed(calls, rounds)
    for name, call in calls.items():  # by now it goes by what it found when it was first made
        check(f"{op}, {framework}, {name}", call(), OPS[op][1])
    own = found["jit" if framework == "jax" else "hand"].median
    ours = found["xlayout"].median
    made = {"op": op, "framework": framework, "to_own": round(ours / own, 2)}
    if "einops" in found:
        made["to_einops"] = round(ours / found["einops"].median, 2)
    for name, time in found.items():
        made[name] = [round(time.median, 2), round(time.spread, 2)]
    return made


def misses(row: dict[str, Any]) -> list[str]:
    """The limits that a row breaks."""
    limit = LIMITS[row["framework"]]
    over = [f"{row['to_own']:.2f} > {limit} of its own form"] if row["to_own"] > limit else []
    if row.get("to_einops", 0) > 1:
        over.append(f"{row['to_einops']:.2f} of einops")
    return over


def printed(row: dict[str, Any]) -> tuple[str, ...]:
    """A row as cells."""

    def cell(name: str) -> str:
        return f"{row[name][0]:.2f} ±{row[name][1]:.2f}" if name in row else ""

    times = [cell(name) for name in ("xlayout", "hand", "einops", "jit")]
    einops = f"{row['to_einops']:.2f}" if "to_einops" in row else ""
    mark = "over" if misses(row) else ""
    return (row["op"], row["framework"], *times, f"{row['to_own']:.2f}", einops, mark)


def import_milliseconds() -> float:
    """`import xlayout` in a fresh interpreter: the best of ten, and no framework in sight."""
    code = (
        "import time; t = time.perf_counter(); import xlayout; t = time.perf_counter() - t; "
        "import sys; heavy = {'torch', 'jax', 'numpy'} & set(sys.modules); "
        "assert not heavy, heavy; print(t)"
    )
    command = [sys.executable, "-c", code]
    times = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(10)
    ]
    return min(times) * 1e3


def main() -> int:
    """Print the table, save it; 1 when a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=count, default=50)
    parser.add_argument("--only", choices=LIMITS, help="one framework")
    parser.add_argument("--op", choices=OPS, help="one op")
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    torch.set_num_threads(1)
    gc.disable()
    rows = [
        row(op, framework, options.rounds)
        for framework in ([options.only] if options.only else LIMITS)
        for op in ([options.op] if options.op else OPS)
    ]
    header = ("op", "framework", "xlayout", "hand", "einops", "jit", "/own", "/einops", "")
    show("microseconds per call on 1 KB", header, [printed(r) for r in rows])
    print(f"import xlayout: {import_milliseconds():.1f} ms, no framework loaded")
    if not options.only and not options.op:
        print(f"written to {save('overhead', rows)}")
    broken = [(r["op"], r["framework"], text) for r in rows for text in misses(r)]
    for op, framework, text in broken:
        print(f"over the limit: {op}, {framework}: {text}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
