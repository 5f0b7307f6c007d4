"""Small calls give the right answer too, both into existing arrays and into new ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xlayout.bench.rows import Settings, raced

for _name in ("torch", "jax", "einops"):
    pytest.importorskip(_name)

from bench.contenders import INTO, OPS  # noqa: E402 -- these bring the frameworks
from bench.small import measure_small, small_contest  # noqa: E402

ONCE = Settings(1, rounds=3, seconds=0.001, compiled=False, peaks=False)


@pytest.mark.parametrize("framework", ["torch", "numpy"])
@pytest.mark.parametrize("op", OPS)
def test_an_op_gives_the_answer_every_way(op: str, framework: str) -> None:
    times = measure_small(op, framework, ONCE).times
    assert {"xlayout fresh", "eager fresh"} <= set(times)
    assert ("xlayout reused" in times) == ("eager reused" in times) == (op in INTO)


@pytest.mark.parametrize("op", ["interleave", "unstack"])
def test_jax_has_new_arrays_alone(op: str) -> None:
    times = measure_small(op, "jax", ONCE).times
    assert {"xlayout fresh", "eager fresh", "compiled fresh", "xlayout compiled"} <= set(times)
    assert not any("reused" in name for name in times)


def test_a_call_that_writes_nothing_cannot_pass_with_an_older_answer() -> None:
    held = small_contest("interleave", "numpy", ONCE)
    written = held.calls["xlayout reused"]()
    idle = replace(held, calls={"eager reused": lambda: written})
    wanted = OPS["interleave"][1].reshape(-1).view(np.uint8)
    with pytest.raises(AssertionError, match=r"eager reused: byte \d+ of 1024 is wrong"):
        raced(idle, wanted, ("interleave", "numpy", "float32", 1024), "small calls", ONCE)
