"""How far a large op is from memcpy: xlayout and torch's own form, as ratios in one run.

    python bench/speed.py [--mib 64] [--rounds 7] [--threads 2] [--only transpose] [--dtype uint8]

The unit is one copy of the same bytes between buffers that are in use: the faster of torch's
`copy_` and a copy with streaming stores, timed in the same round. All contenders take turns within
a round; a figure is the median of the rounds' ratios. "reused" writes into an array that is there
(`out=`), "fresh" makes a new one, and pays for the first touch of its pages. Every answer is
checked before it is timed. With `--threads 1` the clock is this thread's processor time, which
other work on the machine hardly lengthens; with more it is the wall's, for a quiet machine.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Any

import torch
from report import save, show

import xlayout as xl
import xlayout_native

WIDTH = 4096
DTYPES = ("bfloat16", "float32", "uint8")


@dataclass(frozen=True, slots=True)
class Case:
    """An op three ways; `view` is what torch would copy, where one view says it all."""

    shapes: Callable[[int], list[tuple[int, ...]]]
    ours: Callable[..., Any]
    hand: Callable[..., Any]
    view: Callable[..., Any] | None = None


def _copied(view: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: view(*xs).contiguous()


def _one(shape: Callable[[int], tuple[int, ...]], ours: Any, view: Callable[..., Any]) -> Case:
    return Case(lambda n: [shape(n)], ours, _copied(view), view)


def _rows(n: int) -> tuple[int, int]:
    return n // WIDTH // 64 * 64, WIDTH


def _odd(n: int) -> tuple[int, int]:
    side = math.isqrt(n)
    return side - 7, side - 3


def _square(n: int) -> tuple[int, int]:
    side = 1 << (n.bit_length() - 1) // 2
    return side, n // side


def _grouped(q: Any, k: Any, v: Any) -> Any:
    parts = [x.view(8, -1, WIDTH) for x in (q, k, v)]
    return torch.cat(parts, 1).view(-1, WIDTH)


CASES: dict[str, Case] = {
    "interleave rows": _one(_rows, xl.interleave, lambda x: x.view(2, -1, WIDTH).transpose(0, 1)),
    "rope on weights": _one(
        _rows,
        lambda x, **o: xl.rope_halves(x, heads=32, **o),
        lambda x: x.view(32, -1, 2, WIDTH).transpose(1, 2),
    ),
    "fuse qkv": Case(
        lambda n: [(n // WIDTH // 96 * 64, WIDTH), *[(n // WIDTH // 96 * 16, WIDTH)] * 2],
        lambda q, k, v, **o: xl.fuse_qkv(q, k, v, heads=32, kv_heads=8, **o),
        _grouped,
    ),
    "stack layers": Case(
        lambda n: [(n // WIDTH // 32, WIDTH)] * 32,
        lambda *xs, **o: xl.stack(xs, **o),
        lambda *xs: torch.stack(xs),
    ),
    "merge columns": Case(
        lambda n: [(n // WIDTH, WIDTH // 8)] * 8,
        lambda *xs, **o: xl.from_tiles([list(xs)], **o),
        lambda *xs: torch.cat(xs, 1),
    ),
    "interleave columns": _one(
        _rows,
        lambda x, **o: xl.interleave(x, axis=1, **o),
        lambda x: x.view(-1, 2, WIDTH // 2).transpose(1, 2),
    ),
    "deinterleave columns": _one(
        _rows,
        lambda x, **o: xl.deinterleave(x, axis=1, **o),
        lambda x: x.view(-1, WIDTH // 2, 2).transpose(1, 2),
    ),
    "rope on activations": _one(
        _rows,
        lambda x, **o: xl.rope_halves(x, heads=64, axis=1, **o),
        lambda x: x.view(-1, 64, WIDTH // 128, 2).transpose(2, 3),
    ),
    "transpose": _one(_square, xl.matrix_transpose, lambda x: x.t()),
    "transpose, odd": _one(_odd, xl.matrix_transpose, lambda x: x.t()),
    "transpose, 64 experts": _one(
        lambda n: (64, n // 64 // 512, 512), xl.matrix_transpose, lambda x: x.mT
    ),
}


def inputs(case: Case, dtype: torch.dtype, size: int) -> list[torch.Tensor]:
    """Row-major tensors of about `size` bytes in all."""
    made = []
    for shape in case.shapes(size // dtype.itemsize):
        count = math.prod(shape) * dtype.itemsize
        made.append(torch.randint(0, 127, (count,), dtype=torch.uint8).view(dtype).view(shape))
    return made


def contenders(case: Case, xs: list[torch.Tensor]) -> dict[str, Callable[[], Any]]:
    """Calls by column; each is seen to give torch's answer."""
    wanted = case.hand(*xs)
    out = torch.zeros_like(wanted)
    shaped = out.view(case.ours(*xs).shape)
    calls = {
        "xlayout, reused": lambda: case.ours(*xs, out=shaped),
        "xlayout, fresh": lambda: case.ours(*xs),
        "torch, fresh": lambda: case.hand(*xs),
    }
    if case.view is not None:
        view = case.view(*xs)
        calls["torch, reused"] = lambda: out.copy_(view)
    for name, call in calls.items():
        out.zero_()
        assert torch.equal(_bytes(call()), _bytes(wanted)), f"{name}: wrong answer"
    return calls


def _bytes(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1).view(torch.uint8)


def bases(count: int, threads: int) -> dict[str, Callable[[], Any]]:
    """Copies of `count` bytes between two buffers in use."""
    source, target = torch.ones(2, count, dtype=torch.uint8).unbind()
    calls: dict[str, Callable[[], Any]] = {"copy_": lambda: target.copy_(source)}
    if xlayout_native.available:
        plan = xlayout_native.prepare([(0, 0, (0, 0, ((count, 1, 1),)))], 1, 1, 1)
        addresses = source.data_ptr(), target.data_ptr()
        calls["streamed"] = lambda: xlayout_native.run(plan, threads, *addresses)
    return calls


def ratios(
    calls: dict[str, Callable[[], Any]],
    units: dict[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float],
) -> dict[str, float]:
    """Median over the rounds of each call's time by the fastest unit's."""

    def timed(call: Callable[[], Any]) -> float:
        start = clock()
        call()
        return clock() - start

    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        unit = min(map(timed, units.values()))
        for name, call in calls.items():
            found[name].append(timed(call) / unit)
    return {name: round(statistics.median(values), 2) for name, values in found.items()}


def table(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each op and dtype."""
    clock = thread_time if options.threads == 1 else perf_counter
    for name, case in CASES.items():
        for dtype in options.dtype:
            if options.only not in name:
                continue
            xs = inputs(case, getattr(torch, dtype), options.mib << 20)
            units = bases(sum(x.nbytes for x in xs), options.threads)
            yield {
                "op": name,
                "dtype": dtype,
                **ratios(contenders(case, xs), units, options.rounds, clock),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", default="")
    parser.add_argument("--dtype", nargs="*", default=DTYPES)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if xlayout_native.available:
        xlayout_native.set_threads(options.threads)
    rows = list(table(options))
    columns = ("xlayout, reused", "torch, reused", "xlayout, fresh", "torch, fresh")
    title = f"{options.mib} MiB by memcpy; kernel: {xlayout_native.status()}"
    cells = [(r["op"], r["dtype"], *(f"{r.get(c, ''):>5}" for c in columns)) for r in rows]
    show(title, ("op", "dtype", *columns), cells)
    if not options.only:
        print(save("speed", rows))


if __name__ == "__main__":
    main()
