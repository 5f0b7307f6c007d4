"""What exchange costs beside the frameworks' own `from_dlpack`, in the same run on the same arrays.

    python -m bench exchange [--tensors 1000] [--rounds 15]

Rounds of all contenders alternate, so that a slow moment of the machine hits each of them, and the
median is taken. Every result is checked to have the pointer of its source.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from bench.report import count, parser, save, show
from xlayout.bridge import to_jax, to_numpy, to_torch

LIMIT = 1.5
TENSORS, ROUNDS = 1000, 15  # as in the recorded results


@dataclass(frozen=True, slots=True)
class Race:
    """xlayout and a framework's own function at the same work."""

    title: str
    own: Callable[[], Any]
    ours: Callable[[], Any]
    calls: int
    limited: bool = False

    def run(self, rounds: int) -> tuple[float, float]:
        """Median seconds per call: the framework's own, then xlayout's."""
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds + 1):
            for contender, spent in zip((self.own, self.ours), times, strict=True):
                start = perf_counter()
                for _ in range(self.calls):
                    contender()
                spent.append((perf_counter() - start) / self.calls)
        own, ours = (statistics.median(spent[1:]) for spent in times)  # the first round warms up
        return own, ours


def pointers(arrays: Any) -> list[int]:
    """Where each of the arrays begins."""
    return [pointer(x) for x in (arrays.values() if isinstance(arrays, dict) else [arrays])]


def pointer(x: Any) -> int:
    if isinstance(x, np.ndarray):
        return int(x.__array_interface__["data"][0])
    return int(x.data_ptr() if isinstance(x, torch.Tensor) else x.unsafe_buffer_pointer())


def races(tensors: int) -> list[Race]:
    """Every race, after one run each to check that both contenders share their input's memory."""
    state = {f"layers.{i}.weight": torch.randn(16, 64) for i in range(tensors)}
    arrays = {name: jnp.asarray(t.numpy()) for name, t in state.items()}
    t, a = torch.randn(16, 64), jnp.ones((16, 64))
    n = t.numpy()

    def checked(
        title: str, source: Any, own: Any, ours: Any, calls: int, *, limited: bool = False
    ) -> Race:
        for function in (own, ours):
            assert pointers(function()) == pointers(source), f"{title}: the memory is not shared"
        return Race(title, own, ours, calls, limited)

    into, out = jax.dlpack.from_dlpack, torch.from_dlpack
    return [
        checked(
            f"to_jax, state dict of {tensors}",
            state,
            lambda: {name: into(x) for name, x in state.items()},
            lambda: to_jax(state),
            1,
            limited=True,
        ),
        checked(
            f"to_torch, state dict of {tensors}",
            arrays,
            lambda: {name: out(x) for name, x in arrays.items()},
            lambda: to_torch(arrays),
            3,
            limited=True,
        ),
        checked("to_jax(torch), one array", t, lambda: into(t), lambda: to_jax(t), 300),
        checked("to_torch(jax), one array", a, lambda: out(a), lambda: to_torch(a), 1000),
        checked("to_numpy(torch), one array", t, t.numpy, lambda: to_numpy(t), 1000),
        checked(
            "to_numpy(jax), one array",
            a,
            lambda: np.from_dlpack(a),  # type: ignore[arg-type]
            lambda: to_numpy(a),
            1000,
        ),
        checked(
            "to_torch(numpy), one array", n, lambda: torch.from_numpy(n), lambda: to_torch(n), 1000
        ),
    ]


def main(arguments: Sequence[str]) -> int:
    """Print the table; return 1 if a limit is exceeded."""
    jax.config.update("jax_platforms", "cpu")
    asked = parser("exchange", __doc__)
    asked.add_argument(
        "--tensors",
        type=count,
        default=TENSORS,
        help="tensors in the state dict (default: %(default)s)",
    )
    asked.add_argument(
        "--rounds",
        type=count,
        default=ROUNDS,
        help="times each call is timed (default: %(default)s)",
    )
    options = asked.parse_args(arguments)
    rows, kept, broken = [], [], 0
    for race in races(options.tensors):
        own, ours = race.run(options.rounds)
        ratio = ours / own
        fails = race.limited and ratio > LIMIT
        broken += fails
        limit = f"<= {LIMIT}{'  BROKEN' if fails else ''}" if race.limited else ""
        kept.append({"case": race.title, "own": own, "xlayout": ours})
        rows.append((race.title, f"{own * 1e6:.1f}", f"{ours * 1e6:.1f}", f"{ratio:.2f}", limit))
    show("exchange, all shared", ("", "own, us", "xlayout, us", "ratio", "limit"), rows)
    if (options.tensors, options.rounds) == (TENSORS, ROUNDS):
        print(f"written to {save('exchange', kept)}")
    return 1 if broken else 0
