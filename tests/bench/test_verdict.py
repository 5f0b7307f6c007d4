"""The verdict names every cell in which a peer is faster, and says how far each target is met."""

from __future__ import annotations

from typing import Any

import pytest

from bench.verdict import behind, behind_table, targets_table
from tests.bench.made import MB, row


def test_a_cell_is_held_to_its_fastest_peer() -> None:
    (cell,) = behind(
        [row(xlayout_fresh=3.0, eager_fresh=9.0, compiled_fresh=2.0, einops_fresh=9.0)]
    )
    assert (cell.name, cell.peer, cell.factor) == ("xlayout fresh", "compiled fresh", 1.5)


@pytest.mark.parametrize(
    "times",
    [
        {"xlayout_fresh": 2.19, "eager_fresh": 2.0},
        {"xlayout_fresh": 9.0},
        {"xlayout_reused": 9.0, "eager_fresh": 1.0},
        {"xlayout_compiled": 9.0, "eager_fresh": 1.0, "compiled_fresh": 9.0},
    ],
    ids=["within a tenth", "no peer", "another kind of output", "another kind of call"],
)
def test_a_cell_that_keeps_up_is_not_named(times: dict[str, Any]) -> None:
    assert behind([row(**times)]) == []


def test_the_worst_comes_first_and_doubt_is_told() -> None:
    rows = [
        row(xlayout_fresh=(2.4, 0.3), eager_fresh=(2.0, 0.3)),
        row("unzip", xlayout_reused=3.0, eager_reused=1.0),
    ]
    assert [cell.row.op for cell in behind(rows)] == ["unzip", "zip"]
    assert [cell.surely for cell in behind(rows)] == [True, False]
    text = str(behind_table(rows)).splitlines()
    assert text[-1] == "2 of 2 cells; times in memcpys, of small calls in µs"
    assert "within the spread" in text[-2]
    assert "within the spread" not in text[-3]


def test_small_calls_are_told_in_microseconds() -> None:
    small = row("stack", size=1024, unit=1e-7, xlayout_fresh=80.0, eager_fresh=20.0)
    assert "8.00 ±0.00 µs" in str(behind_table([small]))


def line(rows: list[Any], target: str) -> str:
    return next(text for text in str(targets_table(rows)).splitlines() if text.startswith(target))


def test_a_target_counts_the_cells_that_meet_it_and_names_the_worst() -> None:
    rows = [
        row(xlayout_reused=1.25, xlayout_fresh=2.0),
        row("unzip", dtype="uint8", xlayout_reused=1.26, xlayout_fresh=2.0),
        row("unzip", size=4 * MB, xlayout_reused=9.0, xlayout_fresh=9.0),
    ]
    wanted = "zips, torch, reused 1.25 1.25 1.26 unzip, uint8, 64 MB 1 of 2"
    assert line(rows, "zips, torch, reused").split() == wanted.split()
    assert line(rows, "zips, torch, fresh").endswith("2 of 2")


def test_single_bytes_have_a_target_of_their_own_in_transposes() -> None:
    rows = [
        row("transpose", dtype=dtype, family="transposes", xlayout_reused=2.0, xlayout_fresh=2.0)
        for dtype in ("uint8", "float32")
    ]
    assert line(rows, "transposes, torch, reused ").endswith("0 of 1")
    assert line(rows, "transposes, torch, reused, 1 byte").endswith("1 of 1")


def test_a_call_inside_jit_is_held_to_torch_s() -> None:
    rows = [row(xlayout_fresh=2.0), row(framework="jax", xlayout_compiled=3.0)]
    assert line(rows, "zips, inside jax.jit, relative to torch").split()[-3:] == ["1", "of", "1"]
    rows[1] = row(framework="jax", xlayout_compiled=3.1)
    assert line(rows, "zips, inside jax.jit, relative to torch").split()[-3:] == ["0", "of", "1"]


def test_small_calls_are_held_to_their_seconds() -> None:
    rows = [
        row("stack", size=1024, family="small calls", unit=1e-7, xlayout_fresh=19.0),
        row(
            "stack", "jax", size=1024, family="small calls", xlayout_fresh=12.0, compiled_fresh=10.0
        ),
    ]
    assert line(rows, "small calls, torch").endswith("1 of 1")
    assert line(rows, "small calls, JAX").endswith("0 of 1")
