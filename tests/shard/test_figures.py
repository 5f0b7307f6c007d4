"""What the guide says about bytes is what the benchmark found, to the digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guide/sharding.md").read_text("utf-8")
ROWS: list[dict[str, Any]] = json.loads((ROOT / "bench/results/sharding.json").read_text("utf-8"))[
    "rows"
]


@pytest.mark.parametrize("row", [r for r in ROWS if "contender" in r], ids=lambda r: r["contender"])
def test_the_guide_says_what_was_measured(row: dict[str, Any]) -> None:
    figures = (f"{row[name]:.2f}" for name in ("in all", "median", "worst"))
    assert f"| {row['contender']} | {' | '.join(figures)} |" in GUIDE.splitlines()
    assert row["needless"] == 0


@pytest.mark.parametrize(
    ("case", "contender", "said"),
    [("rope of six heads", "XLA", "6.0"), ("a slice off the grid", "DTensor", "9.1"),
     ("interleave", "DTensor", None)],
)  # fmt: skip
def test_the_worst_that_it_names_are_those(case: str, contender: str, said: str | None) -> None:
    (row,) = (r for r in ROWS if r.get("case") == case and "bound" in r)
    if said is None:
        assert row[contender] is None
    else:
        assert f"{row[contender] / row['bound']:.1f}" == said
        assert f"{said} times" in GUIDE.replace("\n", " ")
    assert all(r["xlayout"] == r["bound"] for r in ROWS if "bound" in r)
