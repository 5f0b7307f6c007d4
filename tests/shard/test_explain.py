"""A plan in words, line by line."""

from __future__ import annotations

import pytest

import xlayout as xl
from xlayout import Mesh, Sharding, plan_reshard

IN_ROUNDS = """\
from (12,) (tp) on tp=3
to   (12,) (tp) on tp=3
by   (a=2 b=2 c=3) -> (b a c)
8 B in 4 messages, at most 4 B to one rank; 1.00x the 8 B that ranks need and do not have
in 2 rounds, padded to 1.00x
  0 <- 1: 2 B
  1 <- 0: 2 B
  1 <- 2: 2 B
  2 <- 1: 2 B
never local to that result: cannot shard axis 0 = 12 into 3: the cut at 4 falls inside a factor \
of 6 (of 2 x 2 x 3). Clean cuts: 1, 2, 4, 12; anything else must communicate"""

MANY = """\
from (10, 5) (tp) on tp=5
to   (5, 10) (tp) on tp=5
by   a=10 b=5 -> b a
160 B in 20 messages, at most 32 B to one rank; 1.00x the 160 B that ranks need and do not have
in one all_to_all among 5 ranks
  0 <- 1: 8 B
  0 <- 2: 8 B
  0 <- 3: 8 B
  0 <- 4: 8 B
  1 <- 0: 8 B
  1 <- 2: 8 B
  1 <- 3: 8 B
  1 <- 4: 8 B
  2 <- 0: 8 B
  2 <- 1: 8 B
  2 <- 3: 8 B
  2 <- 4: 8 B
  and 8 more
local if it came from (-, tp) on tp=5"""

JOINED = """\
from (2,) (tp) on tp=2
from (4,) (tp) on tp=2
to   (6,) (tp) on tp=2
by   a=2, b=4 -> (a + b)
10 B in 2 messages, at most 5 B to one rank; 1.00x the 10 B that ranks need and do not have
in one all_to_all among 2 ranks
  0 <- 1: 5 B
  1 <- 0: 5 B
never local to that result: pullback: no sharding of ((2,), (4,)) gives every rank what it needs \
for (tp) on tp=2; leave the source whole, or let it communicate"""


@pytest.mark.parametrize(
    ("layout", "ranks", "itemsize", "text"),
    [
        (xl.interleave.layout((12,), block=3), 3, 2, IN_ROUNDS),
        (xl.matrix_transpose.layout((10, 5)), 5, 4, MANY),
        (xl.Layout.concat([(2,), (4,)]), 2, 5, JOINED),
    ],
)
def test_a_plan_says(layout: xl.Layout, ranks: int, itemsize: int, text: str) -> None:
    rows = Sharding(Mesh(ranks, "tp"), ("tp",))
    plan = plan_reshard(layout, (rows,) * len(layout.in_shapes), rows, itemsize=itemsize)
    assert plan.explain() == text
