"""Checks: a contender that fails is reported in place of its figure, and the others race on."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bench.gpu.timing import Figure
from xlayout.bench.cases import CASES

__all__ = ["OPS", "Calls", "contest", "measured", "show", "told", "troubles"]

Calls = Mapping[str, Callable[[], Any]]
Cell = dict[str, float] | str

OPTIONAL = ("pallas",)
"""No part of the library: that another version cannot run it is a finding."""

WRONG = "wrong answer"

OPS = tuple(op for op, made in CASES.items() if made.family != "edges")
"""The ops that are measured: those that a target rests on, or a decision. A run has few minutes."""


def contest(
    op: str,
    calls: Calls,
    right: Callable[[Any], bool],
    race: Callable[[Calls], dict[str, Figure]],
) -> dict[str, Cell]:
    """A figure for every call, or why there is none; a call with a wrong answer is not timed."""
    why: dict[str, Cell] = {}
    for name, call in calls.items():
        try:
            if not right(call()):
                why[name] = f"{op}, {name}: {WRONG}"
        except Exception as error:  # noqa: BLE001 -- whatever it is, the others race on
            why[name] = told(op, name, error)
    sound = {name: call for name, call in calls.items() if name not in why}
    try:
        found: dict[str, Cell] = {k: figure.asdict() for k, figure in race(sound).items()}
    except Exception as error:  # noqa: BLE001
        if len(sound) <= 1:
            found = {name: told(op, name, error) for name in sound}
        else:
            alone = (contest(op, {k: call}, right, race) for k, call in sound.items())
            found = {name: cell for cells in alone for name, cell in cells.items()}
    return {name: (found | why)[name] for name in calls}


def measured(row: dict[str, Any], figures: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The row with its figures, or with the reason for their absence, even if set-up failed."""
    try:
        return row | figures()
    except Exception as error:  # noqa: BLE001 -- the other rows are measured all the same
        return row | {"calls": {"xlayout": told(row["op"], "before any call", error)}}


def told(op: str, name: str, error: Exception) -> str:
    """An error on one line; the traceback goes to standard error."""
    traceback.print_exception(error)
    return f"{op}, {name}: {type(error).__name__}: {' '.join(str(error).split())}"[:200]


def troubles(row: Mapping[str, Any]) -> list[str]:
    """The messages that stand in place of missing figures."""
    cells = (*row.get("calls", {}).items(), *row.get("tuned", {}).items())
    return [
        cell
        for name, cell in cells
        if isinstance(cell, str) and (name not in OPTIONAL or cell.endswith(WRONG))
    ]


def show(rows: Iterable[dict[str, Any]]) -> None:
    """Print each row as soon as it is measured; fail at the end if a figure is missing."""
    said = []
    for row in rows:
        print(json.dumps(row), flush=True)
        said += troubles(row)
    if said:
        sys.exit("\n".join(said))
