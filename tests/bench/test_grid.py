"""The grid measures the rows it announces, goes on where it stopped, and never mixes machines."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import grid
from bench.grid import fill, main, report, start
from bench.plan import FAMILIES, FULL, QUICK, left_out
from bench.record import Results, load, save
from tests.bench.made import HERE, MB, results, row
from xlayout.bench.cases import CASES

TINY = replace(
    QUICK, ops=("zip",), small=("stack",), dtypes=("uint8",), sizes=(MB,), rounds=3, seconds=0.01
)


@pytest.fixture
def frameworks() -> None:
    for name in ("torch", "jax", "einops"):
        pytest.importorskip(name)


def test_every_op_has_a_family_that_is_run() -> None:
    assert {CASES[op].family for op in FULL.ops} | {"small calls"} == set(FAMILIES)
    assert set(FULL.ops) == set(CASES)
    assert set(QUICK.ops) < set(FULL.ops)


def test_the_large_rows_are_ops_by_dtypes_by_sizes_by_frameworks() -> None:
    keys = [key for family in FAMILIES[:-1] for key in FULL.keys(family)]
    assert len(keys) == len(set(keys)) == len(CASES) * 3 * 3 * 3
    assert {key[3] for key in keys} == {4 * MB, 64 * MB, 512 * MB}


@pytest.mark.usefixtures("frameworks")
def test_one_op_can_be_had_alone() -> None:
    keys = [key for family in FAMILIES for key in FULL.only(["zip", "stack"]).keys(family)]
    assert {key[0] for key in keys} == {"zip", "stack"}
    assert len(keys) == 3 * 3 * 3 + 3
    with pytest.raises(ValueError, match="op: 'zap'; there are deinterleave, "):
        FULL.only(["zip", "zap"])


@pytest.mark.usefixtures("frameworks")
def test_rows_are_measured_and_kept_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "grid.json"
    held = Results(HERE, "")
    assert fill(TINY, ["zips"], held, path, resume=False, seconds=0.0) == 2
    (first,) = load(path).rows.values()
    again = start(path, HERE, "2026-02-01", keep=True)
    assert fill(TINY, ["zips", "small calls"], again, path, resume=True) == 0
    read = load(path)
    assert (read.date, len(read.rows)) == ("2026-02-01", 6)
    assert read.rows[first.key] == first, "a row that was there is not measured again"
    assert list(read.rows) == TINY.keys("zips") + TINY.keys("small calls")
    text = report(read)
    for part in ("zips", "small calls", "against the targets", "cells above 1.10", "cpu a cpu"):
        assert part in text


@pytest.mark.usefixtures("frameworks")
def test_an_op_that_is_measured_again_keeps_its_place(tmp_path: Path) -> None:
    path, first = tmp_path / "grid.json", row("interleave rows", framework="jax")
    last = row("transpose", framework="jax", family="transposes")
    held = results([last, first])
    fill(replace(TINY.only(["zip"]), sizes=(4 * MB,)), ["zips"], held, path, resume=False)
    found = [key[0] for key in load(path).rows]
    assert found == ["interleave rows", "zip", "zip", "zip", "transpose"]


@pytest.mark.usefixtures("frameworks")
def test_results_that_are_there_stay_until_the_run_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grid, "QUICK", TINY)
    monkeypatch.setattr(grid, "_plot", lambda _path: None)
    path, growing = tmp_path / "quick.json", tmp_path / "quick.partial.json"
    run = ["--quick", "--family", "zips", "--threads", "1", "--out", str(path)]
    assert main([*run, "--seconds", "0"]) == grid.UNFINISHED
    assert not path.exists()
    (first,) = load(growing).rows.values()
    for part in (["--family", "zips"], ["--op", "zip"]):
        assert main([*run[:1], *run[3:], *part]) == 2
        assert f"{growing} has rows of a run that was stopped; --resume" in capsys.readouterr().err
    assert list(load(growing).rows.values()) == [first]
    assert main([*run, "--resume"]) == 0
    assert not growing.exists()
    assert load(path).rows[first.key] == first
    assert main([*run, "--seconds", "0"]) == grid.UNFINISHED
    assert len(load(path).rows) == len(TINY.keys("zips"))


def test_results_from_elsewhere_are_not_added_to(tmp_path: Path) -> None:
    path = tmp_path / "grid.json"
    save(results([row(xlayout_fresh=2.0)], cpu="another"), path)
    with pytest.raises(
        ValueError, match=r"grid\.json is from elsewhere: cpu: another, then a cpu\. --out names"
    ):
        start(path, HERE, "", keep=True)
    assert start(path, HERE, "", keep=False).rows == {}


@pytest.mark.parametrize("keep", [False, True])
def test_a_file_that_holds_something_else_is_not_replaced(tmp_path: Path, keep: bool) -> None:
    path = tmp_path / "notes.json"
    path.write_text('{"mine": 1}', "utf-8")
    with pytest.raises(ValueError, match=r"notes\.json: no results of `python -m bench grid`"):
        start(path, HERE, "", keep=keep)


def test_slow_calls_are_left_out_at_512_mb_alone() -> None:
    before = row(framework="numpy", eager_fresh=41.0, xlayout_fresh=2.0)
    rows = {before.key: before}
    large = ("zip", "numpy", "bfloat16", 512 * MB)
    assert left_out(large, rows) == {"eager fresh": "above 40 memcpys at 64 MB"}
    assert left_out(before.key, rows) == {}
    assert left_out(("zip", "torch", "bfloat16", 512 * MB), rows) == {}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--threads", "0"], r"--threads: 0; this machine has 1 to \d+"),
        (["--family", "absent"], "invalid choice: 'absent'"),
        (["--out", "found.txt"], r"--out: found\.txt; wanted a name that ends in \.json"),
        (["--out", "found.png"], r"--out: found\.png; wanted a name that ends in \.json"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    arguments: list[str], why: str, capsys: Any
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert re.search(why, capsys.readouterr().err)


def test_an_op_of_another_family_is_refused(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "none.json"
    asked = ["--family", "rows", "--op", "zip", "--threads", "1", "--out", str(path)]
    assert main(asked) == 2
    error = capsys.readouterr().err
    assert "grid: op: none of ['zip'] is in the family ['rows']" in error
    assert not path.exists()
