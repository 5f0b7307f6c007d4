"""A comparison names what is slower or faster beyond the spread, and compares like with like."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.compare import main
from bench.record import save
from tests.bench.made import results, row

BASE = row(xlayout_fresh=(2.0, 0.1), xlayout_reused=(1.0, 0.02), eager_fresh=(8.0, 0.5))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.json"
    save(results([BASE]), path)
    return path


def compared(old: Path, *options: str, machine: str = "a cpu", **times: tuple[float, float]) -> int:
    given: dict[str, Any] = {"xlayout_fresh": (2.0, 0.1), "eager_fresh": (8.0, 0.5), **times}
    save(results([row(**given)], cpu=machine), old.with_name("new.json"))
    return main([str(old), str(old.with_name("new.json")), *options])


def lines(capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    """What stands under each heading."""
    found: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        if line in ("slower", "faster"):
            here = found.setdefault(line, [])
        elif line.startswith("zip"):
            here.append(line)
    return found


def test_nothing_changed(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(old) == 0
    assert lines(capsys) == {"slower": [], "faster": []}


def test_slower_is_named_and_fails(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(old, xlayout_fresh=(2.6, 0.1)) == 1
    (line,) = lines(capsys)["slower"]
    wanted = "zip torch bfloat16 64 MB xlayout fresh 2.00 ±0.10 2.60 ±0.10 1.30"
    assert line.split() == wanted.split()


def test_faster_is_named_and_does_not_fail(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(old, xlayout_reused=(0.8, 0.01)) == 0
    found = lines(capsys)
    assert [len(found[what]) for what in ("slower", "faster")] == [0, 1]


def test_what_lies_within_the_spreads_is_no_change(old: Path) -> None:
    assert compared(old, xlayout_fresh=(2.6, 0.6)) == 0
    assert compared(old, xlayout_fresh=(2.6, 0.4)) == 1


def test_a_small_change_is_none_until_the_threshold_says_so(old: Path) -> None:
    assert compared(old, xlayout_reused=(1.08, 0.01)) == 0
    assert compared(old, "--threshold", "0.05", xlayout_reused=(1.08, 0.01)) == 1


def test_a_peer_that_moved_is_noise(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(old, eager_fresh=(16.0, 0.5)) == 0
    assert "1 of their 1 calls moved as far" in capsys.readouterr().out


def test_another_machine_is_refused(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(old, machine="another") == 2
    error = capsys.readouterr().err
    assert error == ("compare: cpu: a cpu, then another. --force compares them all the same\n")
    assert compared(old, "--force", machine="another") == 0


def test_a_version_that_one_file_lacks_is_a_difference(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(results([BASE], jax="0.11"), old.with_name("new.json"))
    assert main([str(old), str(old.with_name("new.json"))]) == 2
    assert "jax: unknown, then 0.11" in capsys.readouterr().err


def test_rows_in_one_file_only_are_counted(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = old.with_name("new.json")
    save(results([BASE, row("unzip", xlayout_fresh=2.0)]), new)
    assert main([str(old), str(new)]) == 0
    assert "1 rows are in the new results only" in capsys.readouterr().out
    save(results([row("unzip", xlayout_fresh=2.0)]), new)
    assert main([str(old), str(new)]) == 2
    assert "no row in common" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_refused(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(old), str(old.with_name("absent.json"))]) == 2
    assert "absent.json" in capsys.readouterr().err


@pytest.mark.parametrize("threshold", ["nan", "-1"])
def test_a_threshold_that_nothing_can_pass_is_refused(
    old: Path, threshold: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        compared(old, "--threshold", threshold, xlayout_reused=(9.0, 0.01))
    assert f"--threshold: {float(threshold)}; wanted a fraction" in capsys.readouterr().err


@pytest.mark.parametrize(
    "broken",
    [
        lambda told: told.update(machine=["a cpu"]),
        lambda told: told["rows"][0].update(times=[1, 2]),
        lambda told: told["rows"][0]["times"].update({"xlayout fresh": [0.0, 0.0, 0.0, 3]}),
        lambda told: told["rows"][0]["times"].update({"xlayout fresh": ["1", 0.0, 0.0, 3]}),
        lambda told: told["rows"][0]["times"].update({"xlayout fresh": [float("nan"), 0, 0, 3]}),
    ],
)
def test_a_file_with_broken_figures_is_refused(
    old: Path, broken: Callable[[Any], None], capsys: pytest.CaptureFixture[str]
) -> None:
    told = json.loads(old.read_text("utf-8"))
    broken(told)
    new = old.with_name("new.json")
    new.write_text(json.dumps(told), "utf-8")
    assert main([str(old), str(new)]) == 2
    assert "new.json: no results of `python -m bench grid`" in capsys.readouterr().err
