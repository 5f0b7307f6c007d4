"""The guide's figures are those of the results, and are written anew without touching the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.page import BEGIN, END, OTHERS, PAGE, RESULTS, figures, main, whole, written
from bench.record import save
from tests.bench.made import results, row

ROWS = [
    row(xlayout_fresh=2.0, eager_fresh=8.0, einops_fresh=6.0, xlayout_reused=1.1),
    row(dtype="uint8", xlayout_fresh=3.0, eager_fresh=8.0),
    row("stack", size=1024, family="small calls", unit=1e-7, xlayout_fresh=40.0, eager_fresh=20.0),
]


def test_the_guide_holds_the_figures_of_the_results() -> None:
    page = PAGE.read_text("utf-8")
    assert written(page, *map(whole, (RESULTS, *OTHERS))) == page, "python -m bench page"


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
