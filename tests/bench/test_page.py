"""The guide's figures are those of the results, and are rewritten without touching the rest."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from bench import page
from bench.page import (
    BEGIN,
    END,
    elsewhere,
    figures,
    looped,
    pages,
    whole,
    written,
)
from bench.record import load, save, write_rows
from tests.bench.made import results, row

README = page.ROOT / "README.md"

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
    for path, text in pages().items():
        assert path.read_text("utf-8") == text, "python -m bench page"


def cells(page: str, columns: int) -> dict[str, list[str]]:
    """The lines of figures of tables with so many columns, by what they begin with."""
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {name: told for name, *told in lines if len(told) == columns - 1 and "(" in told[0]}


def test_the_table_of_the_readme_is_a_part_of_the_guide_s() -> None:
    whole_table = cells(page.PAGE.read_text("utf-8"), 8)
    short = cells(README.read_text("utf-8"), 7)
    assert len(short) == 11
    for op, told in short.items():
        assert told == [whole_table[op][k] for k in (0, 1, 2, 4, 5, 6)], op


def test_the_readme_tells_small_calls_as_they_were_measured() -> None:
    found = load(page.RESULTS)
    loops = looped(page.LOOPS, found)
    over = {
        name: [r for r in loops if r["framework"] == name] for name in ("torch", "numpy", "jax")
    }
    often = [f"{statistics.median(r['to_own'] for r in own):.1f}" for own in over.values()]
    worst = [max(own, key=lambda r: r["to_own"]) for own in over.values()]
    between = []
    for name in over:
        own = "compiled fresh" if name == "jax" else "eager fresh"
        times = [row.times for row in found.of("small calls") if row.framework == name]
        ratios = [each["xlayout fresh"].ratio / each[own].ratio for each in times]
        between.append(f"{statistics.median(ratios):.1f}")
    text = " ".join(README.read_text("utf-8").split())
    assert "{} times its time in torch, {} in numpy, and {} in JAX".format(*often) in text
    named = [f"{r['to_own']:.1f} (`{r['op']}`)" for r in worst]
    assert "at worst {}, {} and {}".format(*named) in text
    assert "as in a real program, it is {}, {} and {}.".format(*between) in text


def test_the_readme_tells_the_xeon_as_it_was_measured() -> None:
    def told(family: str, framework: str, name: str, digits: int) -> str:
        rows = load(page.RESULTS.with_name(f"grid-xeon-{family}.json")).of(family)
        own = [row for row in rows if row.framework == framework and row.size >= 64 << 20]
        return f"{statistics.median(row.times[name].ratio for row in own):.{digits}f}"

    text = " ".join(README.read_text("utf-8").split())
    reused = [
        told(family, framework, "xlayout reused", 2)
        for family in ("rows", "zips", "transposes")
        for framework in ("torch", "numpy")
    ]
    reused.insert(2, told("rows", "torch", "eager reused", 1))
    own = "take {} in torch and {} in numpy (torch's own ops {}), zips {} and {}, and transposes {}"
    assert f"{own} and {{}}.".format(*reused) in text
    fresh = [told(family, "torch", "xlayout fresh", 1) for family in ("rows", "transposes")]
    assert "Fresh rows take {} and fresh transposes {}, because".format(*fresh) in text


def test_a_part_of_a_run_is_not_told(tmp_path: Path) -> None:
    part = tmp_path / "grid.json"
    save(results(ROWS), part)
    with pytest.raises(ValueError, match=r"grid\.json: \d+ of 705 rows are not there; --resume"):
        whole(part)


def test_a_run_on_another_machine_may_be_older_than_an_op(tmp_path: Path) -> None:
    run, path = load(page.RESULTS), tmp_path / "grid.json"
    run.rows = {key: row for key, row in run.rows.items() if row.op != "unzip by 32"}
    save(run, path)
    with pytest.raises(ValueError, match=r"grid\.json: 27 of 705 rows are not there"):
        whole(path)
    assert len(whole(path, older=True).rows) == 678
    del run.rows["zip", "torch", "uint8", 4 << 20]
    save(run, path)
    with pytest.raises(ValueError, match=r"grid\.json: 1 of 678 rows are not there"):
        whole(path, older=True)


def test_where_a_run_is_missing_no_page_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = tmp_path / "here.md", tmp_path / "there.md"
    for path in (here, there):
        path.write_text(f"{BEGIN}\nold\n{END}\n", "utf-8")
    monkeypatch.setattr(page, "PAGE", here)
    monkeypatch.setattr(page, "ELSEWHERE", there)
    monkeypatch.setattr(page, "OTHERS", (tmp_path / "none.json",))
    assert page.main([]) == 2
    assert "none.json" in capsys.readouterr().err
    assert "old" in here.read_text("utf-8")


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    before = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = written(before, "new")
    assert once.startswith(f"before\n{BEGIN}\n")
    assert once.endswith(f"{END}\nafter\n")
    assert "old" not in once
    assert written(once, "new") == once


def test_every_other_run_s_figures_stand_under_what_it_timed_and_its_machine() -> None:
    kernel = {"copy kernel": "avx2"}
    one, two = results(ROWS, cpu="one", **kernel), results(ROWS[:1], cpu="two", **kernel)
    told = elsewhere(one, two)
    heads = "## Zips, small calls: one, avx2", "## Zips: two, avx2"
    assert told == f"{heads[0]}\n\n{figures(one)}\n\n{heads[1]}\n\n{figures(two)}"


def test_ops_that_have_no_target_have_no_table_of_targets() -> None:
    told = "### Against the targets"
    assert told in figures(results(ROWS))
    own = row("rope and transpose", family="compounds", xlayout_fresh=2.0, eager_fresh=8.0)
    assert told not in figures(results([own]))


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no place for figures: '<!-- figures"):
        written("a page", "new")


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
    jit = f"| {told}, JAX, relative to a cached jit"
    assert f"{jit} | 1.1 | 1.10 | 1.10 | stack, float32, 1 KB | 1 of 1 |" in lines
    assert "over and over" not in figures(results(ROWS))


def test_calls_over_and_over_are_of_the_same_machine(tmp_path: Path) -> None:
    path = tmp_path / "overhead.json"
    write_rows(path, {"machine": {"cpu": "one"}}, LOOP)
    assert looped(path, results(ROWS, cpu="one")) == LOOP
    assert looped(path, results(ROWS, cpu="another")) == ()
