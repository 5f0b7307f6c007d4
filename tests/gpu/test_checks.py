"""A contender that is wrong or fails is reported in place of its figure, and the others race on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.gpu.checks import Calls, contest, measured, show, told, troubles
from bench.gpu.timing import Figure

FIGURE = Figure(0.5, 0.01, 1e-4, 1e-5)


def fails() -> Any:
    raise ValueError("no\nroom")


def race(calls: Calls) -> dict[str, Figure]:
    for call in calls.values():
        call()
    return dict.fromkeys(calls, FIGURE)


def test_each_call_has_a_figure_or_a_reason() -> None:
    calls = {"wrong": lambda: 3, "fails": fails, "right": lambda: 2}
    found = contest("zip", calls, lambda made: made == 2, race)
    assert list(found.items()) == [
        ("wrong", "zip, wrong: wrong answer"),
        ("fails", "zip, fails: ValueError: no room"),
        ("right", FIGURE.asdict()),
    ]


def test_who_fails_in_the_race_does_not_end_it() -> None:
    answers = iter([2])
    calls = {"tires": lambda: next(answers), "right": lambda: 2}
    found = contest("zip", calls, lambda made: made == 2, race)
    assert found == {"tires": "zip, tires: StopIteration: ", "right": FIGURE.asdict()}


def test_a_race_that_cannot_be_held_is_told_of_each() -> None:
    def none(_calls: Calls) -> dict[str, Figure]:
        raise MemoryError("the copy")

    found = contest("zip", {"a": lambda: 2, "b": lambda: 2}, lambda made: made == 2, none)
    assert found == {k: f"zip, {k}: MemoryError: the copy" for k in "ab"}


def test_a_row_that_cannot_be_set_up_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    row = measured({"op": "zip"}, fails)
    assert row["calls"] == {"xlayout": "zip, before any call: ValueError: no room"}
    assert "in fails" in capsys.readouterr().err


def test_an_error_is_one_line_and_short() -> None:
    text = told("zip", "it", ValueError("x\n" * 300))
    assert "\n" not in text
    assert len(text) == 200


def test_all_rows_are_printed_before_the_program_fails(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"op": "zip", "calls": {"xlayout": "zip, xlayout: wrong answer"}},
        {"op": "unzip", "calls": {"xlayout": FIGURE.asdict()}},
    ]
    with pytest.raises(SystemExit, match=r"^zip, xlayout: wrong answer$"):
        show(iter(rows))
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
    show(rows[1:])


def test_what_is_not_ours_may_be_missing_but_not_wrong() -> None:
    for name, text, count in (
        ("pallas", "zip, pallas: ImportError: no such thing", 0),
        ("pallas", "zip, pallas: wrong answer", 1),
        ("jit", "zip, jit: ImportError: no such thing", 1),
    ):
        assert len(troubles({"calls": {name: text}})) == count
    assert troubles({"tuned": {"8 KB": 0.9, "16 KB": "no"}}) == ["no"]
