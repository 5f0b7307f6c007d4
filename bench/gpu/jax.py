"""Speed on a GPU in JAX: an op on arrays, and in `jax.jit`, beside a copy of the same bytes.

    python -m bench.gpu.jax [--mib 64 1024] [--dtype bfloat16] [--only transpose]

The lines are those of `bench.gpu.speed`. xlayout's op is called with arrays, where the Triton
kernel may do the copying. Its contenders are the op written by hand under jit, a Pallas kernel
where its tiles fit, and the op in torch on the same memory, including the way there and back.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import xlayout as xl
from bench.gpu.checks import OPS, Calls, contest, measured, show
from bench.gpu.speed import FIRST, options
from bench.gpu.timing import ROUNDS, Figure, figure_of
from xlayout.bench.answers import UNSIGNED, answer, elements
from xlayout.bench.by_jax import KINDS, WORDS
from xlayout.bench.cases import Case, make_case
from xlayout.bench.contest import parts_of
from xlayout.bench.hands import Permute
from xlayout.bench.words import fresh

__all__ = ["main", "rows"]

GPU = jax.default_backend() == "gpu"
ENOUGH = 2e-2
"""Seconds of work for one reading: the host's part, which comes first and last, is then small."""


def rows(mib: int, dtype: str, only: str) -> Iterator[dict[str, Any]]:
    """The figures of each op."""
    for op in OPS:
        if only in op:
            row = {"framework": "jax", "op": op, "dtype": dtype, "mib": mib}
            yield measured(row, partial(figures, op, dtype, mib))


def figures(op: str, dtype: str, mib: int) -> dict[str, Any]:
    """A figure for every way to run the op, or why there is none."""
    case = make_case(op, (mib << 20) // np.dtype(KINDS[dtype]).itemsize)
    defined = None
    if mib <= FIRST:
        content = elements(case.layout.in_size, dtype)
        source = jnp.asarray(content.view(KINDS[dtype]))
        defined = answer(case.layout, content).view(np.uint8)
    else:
        bits = jax.random.bits(jax.random.key(0), (case.layout.in_size,), UNSIGNED[dtype])
        source = bits.view(KINDS[dtype])
    xs = parts_of(source, case.layout.in_shapes)
    hand = jax.jit(fresh(case.hand, case.layout.out_shapes, WORDS))
    calls: dict[str, Callable[[], Any]] = {
        "xlayout": lambda: case.ours(*xs),
        "jit": lambda: hand(*xs),
        "by torch": lambda: by_torch(case.ours, xs),
    }
    if kernel := pallas_of(op, case):
        compiled = jax.jit(kernel)
        calls["pallas"] = lambda: compiled(xs[0])
    wanted = hand(*xs) if defined is None else None
    copy = jax.jit(jnp.copy)

    def right(made: Any) -> bool:
        if defined is None:
            return same(made, wanted)
        shapes = [x.shape for x in jax.tree.leaves(made)]
        return shapes == [*case.layout.out_shapes] and np.array_equal(raw(made), defined)

    return {"calls": contest(op, calls, right, lambda sound: race(sound, lambda: copy(source)))}


def pallas_of(op: str, case: Case) -> Callable[[Any], Any] | None:
    """The Pallas kernel for an op that is a transposition in whole tiles."""
    if not isinstance(case.hand, Permute) or "odd" in op or "3 columns" in op:
        return None
    rows_alone = case.hand.split[1:] if op in ("zip", "unzip") else None
    if rows_alone is None and not op.startswith("transpose"):
        return None

    def kernel(x: Any) -> Any:
        from bench.gpu.pallas import transpose, turn_rows  # other versions of JAX may lack parts

        if rows_alone is None:
            return transpose(x, interpret=not GPU)
        return turn_rows(x, (rows_alone[0], rows_alone[1]), interpret=not GPU)

    return kernel


def by_torch(ours: Callable[..., Any], xs: list[Any]) -> Any:
    """The op run in torch on the same memory, and its result handed back to JAX."""
    made = ours(*[xl.to_torch(x) for x in xs])
    return xl.to_jax(list(made) if isinstance(made, tuple) else made)


def race(calls: Calls, copy: Callable[[], Any]) -> dict[str, Figure]:
    """Every call and the copy, in turns; JAX has no events, so calls run back to back."""
    both = {"copy": copy, **calls}
    times = {k: max(3, int(ENOUGH / read(call, 3)[0])) if GPU else 1 for k, call in both.items()}
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in both}
    for _ in range(ROUNDS if GPU else 1):
        for name, call in both.items():
            seen[name].append(read(call, times[name]))
    copies, found = [base for base, _ in seen["copy"]], {}
    for name in calls:
        own, hosts = zip(*seen[name], strict=True)
        found[name] = figure_of(copies, own, statistics.median(hosts))
    return found


def read(call: Callable[[], Any], times: int) -> tuple[float, float]:
    """Seconds that a call takes, and for how many of them it keeps the host."""
    jax.block_until_ready(call())
    start = time.perf_counter()
    for _ in range(times):
        made = call()
    queued = time.perf_counter()
    jax.block_until_ready(made)
    return (time.perf_counter() - start) / times, (queued - start) / times


def same(made: Any, wanted: Any) -> bool:
    """Whether results have the same bits; compared on the device."""
    pairs = zip(jax.tree.leaves(made), jax.tree.leaves(wanted), strict=True)
    kind = f"uint{8 * jax.tree.leaves(wanted)[0].dtype.itemsize}"
    return all(x.shape == y.shape and bool((x.view(kind) == y.view(kind)).all()) for x, y in pairs)


def raw(made: Any) -> np.ndarray:
    """The bytes of all results, one after another."""
    return np.concatenate([np.asarray(x).reshape(-1).view(np.uint8) for x in jax.tree.leaves(made)])


def main() -> None:
    """Print the rows, dtype by dtype."""
    chosen = options(__doc__ or "")
    show(
        row
        for dtype, mib in itertools.product(chosen.dtype, chosen.mib)
        for row in rows(mib, dtype, chosen.only)
    )


if __name__ == "__main__":
    main()
