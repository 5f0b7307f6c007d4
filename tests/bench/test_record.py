"""Results are kept whole: what was written is read back, and nothing else is mistaken for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.record import Results, load, save
from tests.bench.made import HERE, MB, results, row
from xlayout.bench.tables import peaks_table, times_table

ROWS = [
    row(xlayout_fresh=(2.1, 0.05), eager_fresh=8.0, peaks={"xlayout fresh": 1.0}),
    row("transpose", "jax", family="transposes", xlayout_compiled=(9.5, 0.2)),
    row("stack", "numpy", "float32", 1024, family="small calls", unit=2e-7, xlayout_fresh=9.0),
]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = results(ROWS)
    save(written, tmp_path / "new" / "grid.json")
    read = load(tmp_path / "new" / "grid.json")
    assert (read.machine, read.date) == (written.machine, written.date)
    assert list(read.rows) == list(written.rows)
    assert [r.to_json() for r in read.rows.values()] == [r.to_json() for r in ROWS]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["grid.json"]


def test_results_that_cannot_be_written_leave_the_old_ones(tmp_path: Path) -> None:
    path = tmp_path / "grid.json"
    save(results(ROWS), path)
    before = path.read_text("utf-8")
    with pytest.raises(TypeError, match="not JSON serializable"):
        save(results(ROWS, cpu=object()), path)
    assert path.read_text("utf-8") == before


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name"),
        ('{"machine": {}, "rows": []}', "'format'"),
        ('{"format": 99}', "format 99"),
        ('{"format": 1, "machine": {}, "date": "", "rows": [{"op": "zip"}]}', "'times'"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, "utf-8")
    with pytest.raises(
        ValueError,
        match=rf"other\.json: no results of `python -m bench grid` \(.*{why}.*\); wanted a f",
    ):
        load(path)


def test_rows_of_one_key_replace_each_other_and_keep_an_order() -> None:
    held = Results(HERE, "")
    for each in ROWS:
        held.add(each)
    held.add(row(xlayout_fresh=3.0))
    assert held.rows[ROWS[0].key].times["xlayout fresh"].ratio == 3.0
    held.sort([ROWS[2].key, ROWS[0].key, ("absent", "torch", "uint8", MB)])
    assert list(held.rows) == [ROWS[2].key, ROWS[0].key, ROWS[1].key]
    assert held.families == ["small calls", "zips", "transposes"]


def test_a_row_is_json_of_four_digits() -> None:
    told = json.loads(json.dumps(row(xlayout_fresh=(2.123456, 0.0123456)).to_json()))
    assert told["times"]["xlayout fresh"][:2] == [2.123, 0.01235]


def test_a_table_shows_median_and_spread() -> None:
    text = str(times_table("zips", ROWS[:1]))
    assert "2.10 ±0.05" in text
    assert "64 MB" in text
    assert "compiled" not in text, "a column without figures"


def test_small_calls_are_told_in_microseconds() -> None:
    assert "1.80 ±0.00" in str(times_table("small calls", ROWS[2:]))


def test_calls_left_out_are_marked_and_explained() -> None:
    left = row(xlayout_fresh=2.0)
    left = type(left).from_json({**left.to_json(), "left_out": {"eager fresh": "too slow"}})
    lines = str(times_table("zips", [ROWS[0], left])).splitlines()
    assert lines[-1] == "–: left out, too slow"
    assert "–" in lines[-3]


def test_the_table_of_memory_holds_the_worst() -> None:
    assert peaks_table("memory", ROWS[1:]) is None
    more = row(dtype="uint8", xlayout_fresh=2.0, peaks={"xlayout fresh": 1.5})
    assert "1.50" in str(peaks_table("memory", [ROWS[0], more]))
