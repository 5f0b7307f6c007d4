"""Speed on a GPU in torch: every op beside a device-to-device copy of the same bytes.

    python -m bench.gpu.speed [--mib 64 1024] [--dtype bfloat16] [--only transpose] [--compiled]

A line of JSON for each op, dtype and size, as soon as it is measured. Every answer is checked: at
the first size against the layout's definition, then against torch's own form. A call that is wrong
or fails is reported in place of its figure, and the program exits with 1. Without a GPU it runs on
the CPU, where the figures mean nothing.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from bench.gpu.checks import OPS, contest, measured, show
from bench.gpu.timing import race
from xlayout.bench.answers import answer, elements
from xlayout.bench.by_torch import WORDS
from xlayout.bench.cases import make_case
from xlayout.bench.contest import arrays_of, parts_of
from xlayout.bench.words import fresh

__all__ = ["DTYPES", "main", "options", "rows"]

DTYPES = ("bfloat16", "float32", "uint8")
FIRST = 64
"""MB up to which an answer is checked by the definition, which takes a CPU."""

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def rows(mib: int, dtype: str, only: str, *, compiled: bool) -> Iterator[dict[str, Any]]:
    """The figures of each op."""
    for op in OPS:
        if only in op:
            row = {"framework": "torch", "op": op, "dtype": dtype, "mib": mib}
            yield measured(row, partial(figures, op, dtype, mib, compiled=compiled))


def figures(op: str, dtype: str, mib: int, *, compiled: bool) -> dict[str, Any]:
    """A figure for every way to run the op."""
    kind = getattr(torch, dtype)
    case = make_case(op, (mib << 20) // kind.itemsize)
    size = case.layout.in_size * kind.itemsize
    defined = None
    if mib <= FIRST:
        content = elements(case.layout.in_size, dtype)
        source = torch.from_numpy(content.view("uint8")).to(DEVICE).view(kind)
        defined = torch.from_numpy(answer(case.layout, content).view("uint8")).to(DEVICE)
    else:
        source = torch.randint(0, 256, (size,), dtype=torch.uint8, device=DEVICE).view(kind)
    xs = parts_of(source, case.layout.in_shapes)
    hand = fresh(case.hand, case.layout.out_shapes, WORDS)
    calls: dict[str, Callable[[], Any]] = {
        "xlayout": lambda: case.ours(*xs),
        "eager": lambda: hand(*xs),
    }
    if compiled:
        torch._dynamo.reset()
        function = torch.compile(hand, dynamic=False, fullgraph=True)
        calls["compiled"] = lambda: function(*xs)
    wanted = raw(hand(*xs)) if defined is None else defined
    target = torch.empty_like(source)
    found = contest(
        op,
        calls,
        lambda made: torch.equal(raw(made), wanted),
        lambda sound: race(sound, lambda: target.copy_(source), cuda=CUDA),
    )
    return {"calls": found}


def raw(made: Any) -> torch.Tensor:
    """The bytes of all results, one after another."""
    return torch.cat([x.reshape(-1).view(torch.uint8) for x in arrays_of(made)])


def options(description: str) -> argparse.Namespace:
    """What to measure, from the command line."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--mib", type=int, nargs="+", default=(64, 1024))
    parser.add_argument("--dtype", nargs="+", default=DTYPES, choices=DTYPES)
    parser.add_argument("--only", default="", help="part of an op's name")
    parser.add_argument("--compiled", action="store_true", help="with torch.compile")
    return parser.parse_args()


def main() -> None:
    """Print the rows, dtype by dtype, so that a time-out loses the last dtypes only."""
    chosen = options(__doc__ or "")
    show(
        row
        for dtype, mib in itertools.product(chosen.dtype, chosen.mib)
        for row in rows(mib, dtype, chosen.only, compiled=chosen.compiled)
    )


if __name__ == "__main__":
    main()
