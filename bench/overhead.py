"""What a call costs on 1 KB: xlayout, the hand-written form, einops and a cached `jax.jit`.

    python -m bench overhead [--rounds 50] [--only torch] [--op interleave]

At this size the cost is that of the call, not of the copy. All contenders of an op take turns
within a round, so that a slow moment of the machine hits each of them; a figure is the median over
the rounds, and the spread is half the interquartile range. Every answer is checked before it is
timed. All results are fresh row-major memory (einops is made to copy where it returns a view).
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np

from bench.contenders import OPS, contenders, flattened, given
from bench.report import chosen, count, parser, save, show
from bench.small import compiled, finish
from xlayout.bench.timing import spread_of

LIMITS = {"numpy": 3.0, "torch": 2.0, "jax": 1.5}
"""Of the hand-written form; of the cached `jax.jit` call in JAX. And never above einops."""

ROUNDS = 50  # as in the recorded results


def check(name: str, made: Any, wanted: Any) -> None:
    """Raise unless both are the same arrays."""
    for ours, other in zip(flattened(made), flattened(wanted), strict=True):
        assert ours.shape == other.shape, f"{name}: {ours.shape}, wanted {other.shape}"
        assert np.array_equal(ours, other), f"{name}: wrong answer"


def timed(
    calls: dict[str, Callable[[], Any]], rounds: int, wait: Callable[[Any], object]
) -> dict[str, tuple[float, float]]:
    """(microseconds of a call, their spread) for each contender; in a round all take turns.

    A call is repeated as often as fits in a fifth of a millisecond.
    """

    def loop(call: Callable[[], Any], count: int) -> float:
        start = perf_counter()
        for _ in range(count):
            made = call()
        wait(made)
        return perf_counter() - start

    def once(call: Callable[[], Any]) -> float:
        loop(call, 20)
        return loop(call, 20) / 20

    counts = {name: max(3, int(2e-4 / once(call))) for name, call in calls.items()}
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            spent[name].append(loop(call, counts[name]) / counts[name] * 1e6)
    return {name: (statistics.median(us), spread_of(us)) for name, us in spent.items()}


def calls_of(op: str, framework: str) -> dict[str, Callable[[], Any]]:
    """The calls to time, each after a check that its answer is right."""
    inputs, wanted = OPS[op]
    args = given(framework, inputs)
    forms = contenders(framework, op)
    if framework == "jax":
        forms["jit"] = compiled(framework, forms["hand"], len(args))
    calls = {name: lambda form=form: form(*args) for name, form in forms.items()}
    for name, call in calls.items():
        check(f"{op}, {framework}, {name}", call(), wanted)
    return calls


def row(op: str, framework: str, rounds: int) -> dict[str, Any]:
    """One line of the table."""
    calls = calls_of(op, framework)
    found = timed(calls, rounds, finish(framework))
    for name, call in calls.items():  # by now it uses what its first call cached
        check(f"{op}, {framework}, {name}", call(), OPS[op][1])
    own, _ = found["jit" if framework == "jax" else "hand"]
    ours, _ = found["xlayout"]
    made = {"op": op, "framework": framework, "to_own": round(ours / own, 2)}
    if "einops" in found:
        made["to_einops"] = round(ours / found["einops"][0], 2)
    for name, time in found.items():
        made[name] = [round(figure, 2) for figure in time]
    return made


def misses(row: dict[str, Any]) -> list[str]:
    """The limits that a row exceeds."""
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
    """`import xlayout` in a fresh interpreter without any framework: the best of ten."""
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


def main(arguments: Sequence[str]) -> int:
    """Print the table, save it; return 1 if a limit is exceeded."""
    asked = parser("overhead", __doc__)
    asked.add_argument(
        "--rounds", type=count, default=ROUNDS, help="rounds per call (default: %(default)s)"
    )
    asked.add_argument("--only", choices=LIMITS, help="only this framework")
    asked.add_argument("--op", choices=OPS, help="only this op")
    options = asked.parse_args(arguments)
    frameworks = chosen(asked, options.only, LIMITS)
    if "jax" in frameworks:
        import jax

        jax.config.update("jax_platforms", "cpu")
    if "torch" in frameworks:
        import torch

        torch.set_num_threads(1)
    gc.disable()
    ops = [options.op] if options.op else [*OPS]
    rows = [row(op, framework, options.rounds) for framework in frameworks for op in ops]
    header = ("op", "framework", "xlayout", "hand", "einops", "jit", "/own", "/einops", "")
    show("microseconds per call on 1 KB", header, [printed(r) for r in rows])
    print(f"import xlayout: {import_milliseconds():.1f} ms, no framework loaded")
    whole = len(rows) == len(LIMITS) * len(OPS) and find_spec("einops")
    if whole and options.rounds == ROUNDS:
        print(f"written to {save('overhead', rows)}")
    broken = [(r["op"], r["framework"], text) for r in rows for text in misses(r)]
    for op, framework, text in broken:
        print(f"over the limit: {op}, {framework}: {text}")
    return 1 if broken else 0
