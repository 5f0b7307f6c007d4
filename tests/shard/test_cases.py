"""The cases that compilers get wrong: a plan is at the minimum in each, in MiB a device."""

from __future__ import annotations

import itertools

import pytest

from bench.sharding_cases import AWKWARD, CASES, GRID
from xlayout import Layout, Sharding
from xlayout.shard import plan_reshard


@pytest.mark.parametrize("case", CASES)
def test_the_minimum_that_was_measured(case: str) -> None:
    layout, src, dst, wanted = CASES[case]
    plan = plan_reshard(layout, src, dst, itemsize=4)
    assert plan.recv_bytes == plan.lower_bound
    assert sum(plan.recv_bytes) / plan.ranks / 2**20 == pytest.approx(wanted)


@pytest.mark.parametrize("case", AWKWARD)
def test_the_minimum_where_sizes_are_awkward(case: str) -> None:
    plan = plan_reshard(*AWKWARD[case], itemsize=4)
    assert plan.recv_bytes == plan.lower_bound
    assert sum(r.padding for r in plan.rounds) * plan.itemsize <= 0.1 * sum(plan.recv_bytes)


def test_every_reshard_between_specs_of_a_grid_is_at_the_minimum() -> None:
    entries = [(), ("fsdp",), ("tp",), ("fsdp", "tp"), ("tp", "fsdp")]
    specs = [(a, b) for a, b in itertools.product(entries, repeat=2) if not {*a} & {*b}]
    assert len(specs) == 11
    for a, b in itertools.permutations(specs, 2):
        plan = plan_reshard(Layout.identity((16, 24)), Sharding(GRID, a), Sharding(GRID, b))
        assert plan.recv_bytes == plan.lower_bound
