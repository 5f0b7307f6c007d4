"""What `make gpu` prints and keeps: a cell for each call, what misses its target, one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.ask import ROOT
from bench.gpu.report import WANTED, file_of, misses, record, table
from xlayout.bench.cases import CASES


def figure(share: float) -> dict[str, float]:
    return {"share": share, "spread": 0.01, "seconds": 1e-4, "host": 1e-5}


def row(op: str, share: float, **more: Any) -> dict[str, Any]:
    calls = {"xlayout": figure(share), "eager": figure(0.5)}
    return (
        {"part": "speed", "framework": "torch", "op": op, "dtype": "uint8", "mib": 64}
        | {"calls": calls}
        | more
    )


COMPILED = row("zip", 0.1, part="compiled", calls={"xlayout": figure(0.1), "compiled": figure(0.7)})
JAX = row(
    "zip", 0, part="jax", framework="jax", calls={"jit": figure(0.6), "pallas": "ValueError: no"}
)
STATE = row(
    "state dict of 999",
    0,
    part="state",
    calls={"batch": figure(0.9), "apply_many": figure(0.8), "eager": figure(0.2)},
)


def test_the_parts_meet_in_one_line() -> None:
    text = str(table([row("zip", 0.91), COMPILED, JAX], cuda=True))
    head, _, line, note, hosts = text.splitlines()[1:]
    assert (
        hosts
        == "median time that a call keeps its host, in us: torch: xlayout 10, eager 10, jit 10"
    )
    assert head.split() == [
        "op",
        "dtype",
        "size",
        "torch:",
        "xlayout",
        "eager",
        "compiled",
        "jit",
        "pallas",
    ]
    assert line.split() == [
        "zip",
        "uint8",
        "64",
        "MB",
        "0.91",
        "±0.01",
        "0.50",
        "±0.01",
        "0.70",
        "±0.01",
        "0.60",
        "±0.01",
        "fails",
    ]
    assert note.startswith("share of the speed of a device-to-device copy")


def test_what_is_below_its_target_is_named() -> None:
    rows = [row("zip", 0.86), row("zip", 0.84), row("interleave rows", 0.94), STATE, COMPILED, JAX]
    assert list(misses(rows)) == [
        "misses: zip, uint8, 64 MB: xlayout 0.84; wanted 0.85",
        "misses: interleave rows, uint8, 64 MB: xlayout 0.94; wanted 0.95",
        "misses: state dict of 999, uint8, 64 MB: apply_many 0.80; wanted 0.83",
    ]


@pytest.mark.parametrize("op", CASES)
def test_every_op_of_the_grid_is_judged(op: str) -> None:
    there = CASES[op].family in WANTED
    assert len(list(misses([row(op, 0.01)]))) == there


def test_a_state_dict_without_a_batch_misses() -> None:
    assert list(misses([STATE | {"calls": {}}])) == [
        "misses: state dict of 999, uint8, 64 MB: no batch",
        "misses: state dict of 999, uint8, 64 MB: no apply_many",
    ]


def test_a_tuning_has_no_target() -> None:
    tuned = {"part": "tune", "op": "zip", "dtype": "uint8", "mib": 64, "tuned": {"8 KB": 0.9}}
    assert list(misses([tuned])) == []
    assert "tuned: zip, uint8: {'8 KB': 0.9}" in str(table([tuned], cuda=True))


def test_a_reason_may_stand_in_place_of_a_figure() -> None:
    why = "zip, xlayout: wrong answer"
    told = row("zip", 0, calls={"xlayout": why, "eager": figure(0.5)})
    assert list(misses([told])) == [f"misses: zip, uint8, 64 MB: {why}"]
    line = str(table([told], cuda=True)).splitlines()[3]
    assert line.split() == ["zip", "uint8", "64", "MB", "fails", "0.50", "±0.01"]


HERE = {"device": "NVIDIA H200", "torch": "2.11"}


def test_a_device_has_its_file() -> None:
    assert file_of(HERE["device"]) == ROOT / "bench" / "results" / "gpu-nvidia-h200.json"


def test_parts_of_the_same_versions_add_up(tmp_path: Path) -> None:
    file = tmp_path / "new" / "gpu.json"
    record(file, HERE, {"a": {"verdict": "ok"}}, [row("zip", 0.9), STATE])
    record(file, HERE, {"b": {"verdict": "ok"}}, [row("zip", 0.8)])
    found = json.loads(file.read_text("utf-8"))
    assert found["cases"].keys() == {"a", "b"}
    assert [r["part"] for r in found["rows"]] == ["state", "speed"]
    record(file, HERE | {"torch": "2.12"}, {}, [])
    assert json.loads(file.read_text("utf-8"))["rows"] == []
    assert [path.name for path in file.parent.iterdir()] == ["gpu.json"]


def test_a_run_without_jax_keeps_what_is_known_of_it(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    record(file, HERE | {"jax": "0.11"}, {}, [JAX])
    record(file, HERE, {}, [STATE])
    found = json.loads(file.read_text("utf-8"))
    assert found["jax"] == "0.11"
    assert [r["part"] for r in found["rows"]] == ["jax", "state"]
    file.unlink()
    record(file, HERE, {}, [STATE])
    record(file, HERE | {"jax": "0.11"}, {}, [JAX])
    assert len(json.loads(file.read_text("utf-8"))["rows"]) == 2


def test_a_record_that_was_cut_off_holds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    record(file, HERE, {}, [STATE])
    file.write_text(file.read_text("utf-8")[:-9], "utf-8")
    record(file, HERE, {}, [JAX])
    assert [r["part"] for r in json.loads(file.read_text("utf-8"))["rows"]] == ["jax"]


def test_a_record_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    told = {"verdict": "FAILS", "stderr": [f'  File "{ROOT}/bench/gpu/run.py", line 1']}
    file = tmp_path / "gpu.json"
    record(file, HERE, {"a promise": told}, [])
    kept = json.loads(file.read_text("utf-8"))["cases"]["a promise"]["stderr"]
    assert kept == ['  File "bench/gpu/run.py", line 1']
