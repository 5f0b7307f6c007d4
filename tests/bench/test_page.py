"""The guide's figures are those of the results, and are written anew without touching the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.page import (
    BEGIN,
    END,
    LOOPS,
    OTHERS,
    PAGE,
    RESULTS,
    figures,
    looped,
    main,
    whole,
    written,
)
from bench.record import save, write_rows
from tests.bench.made import results, row

ROWS = [
    row(xlayout_fresh=2.0, eager_fresh=8.0, einops_fresh=6.0, xlayout_reused=1.1),
    row(dtype="uint8", xlayout_fresh=3.0, eager_fresh=8.0),
    row("stack", size=1024, family="small calls", unit=1e-7, xlayout_fresh=40.0, eager_fresh=20.0),
]
LOOP = [
    {"op": "stack", "framework": "torch", "to_own": 2.0, "xlayout": [2.4, 0.1], "hand": [1.2, 0.1]},
    {
        "op": "stack",
        "framework": "jax",
        "to_own": 1.1,
        "xlayout": [4.4, 0.1],
        "hand": [22.0, 0.1],
        "jit": [4.0, 0.1],
    },
]


def test_the_guide_holds_the_figures_of_the_results() -> None:
    page, runs = PAGE.read_text("utf-8"), [whole(path) for path in (RESULTS, *OTHERS)]
    again = written(page, *runs, loops=looped(LOOPS, runs[0]))
    assert again == page, "python -m bench page"


def test_the_guide_is_not_written_from_a_part_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, part = PAGE.read_text("utf-8"), tmp_path / "grid.json"
    save(results(ROWS), part)
    assert main([str(part)]) == 2
    assert re.search(r"grid\.json: \d+ of 462 rows are not there; --resu", capsys.readouterr().err)
    assert PAGE.read_text("utf-8") == before


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = written(page, results(ROWS))
    assert once.startswith(f"before\n{BEGIN}\n")
    assert once.endswith(f"{END}\nafter\n")
    assert "old" not in once
    assert written(once, results(ROWS)) == once


def test_another_machine_s_figures_stand_below() -> None:
    other = results(ROWS[:1], cpu="another")
    once = figures(results(ROWS), other)
    assert once.startswith(figures(results(ROWS)))
    below = once.removeprefix(figures(results(ROWS)))
    assert below.startswith("\n\n### On another\n\nMeasured ")
    assert "#### Zips" in below


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no place for figures: '<!-- figures"):
        written("a page", results(ROWS))


def test_a_figure_is_a_median_beside_the_best_peer_s() -> None:
    lines = figures(results(ROWS)).splitlines()
    assert "| zip | 1.10 | 2.50 (7.0) |  |  |  |  |  |" in lines
    assert "| stack | 4.0 (2.0) |  |  |" in lines
    assert "| stack | torch, bfloat16, 1 KB | xlayout fresh | 2.00 | eager fresh |" in lines


def test_calls_over_and_over_stand_beside_those_between_others() -> None:
    lines = figures(results(ROWS), loops=LOOP).splitlines()
    assert "### The same over and over" in lines
    assert "| stack | 2.4 (1.2) | 4.4 (4.0) |  |" in lines
    told = "small calls over and over"
    assert f"| {told}, torch, µs | 2 | 2.40 | 2.40 | stack, float32, 1 KB | 0 of 1 |" in lines
    jit = f"| {told}, JAX, by a cached jit | 1.1 | 1.10 | 1.10 | stack, float32, 1 KB | 1 of 1 |"
    assert jit in lines
    assert "over and over" not in figures(results(ROWS))


def test_calls_over_and_over_are_of_the_same_machine(tmp_path: Path) -> None:
    path = tmp_path / "overhead.json"
    write_rows(path, {"machine": {"cpu": "one"}}, LOOP)
    assert looped(path, results(ROWS, cpu="one")) == LOOP
    assert looped(path, results(ROWS, cpu="another")) == ()
