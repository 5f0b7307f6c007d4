"""What `make gpu` prints and keeps: a cell for each call, what misses its target, one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import gpu_report
from bench.gpu_report import misses, record, table


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
    "state dict of 999", 0, part="state", calls={"batch": figure(0.8), "eager": figure(0.2)}
)


def test_the_parts_meet_in_one_line() -> None:
    text = str(table([row("zip", 0.91), COMPILED, JAX], cuda=True))
    head, _, line, note = text.splitlines()[1:]
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
        "misses: zip, uint8, 64 MB: 0.84; wanted 0.85",
        "misses: interleave rows, uint8, 64 MB: 0.94; wanted 0.95",
        "misses: state dict of 999, uint8, 64 MB: 0.80; wanted 0.83",
    ]


def test_a_state_dict_without_a_batch_misses() -> None:
    assert list(misses([STATE | {"calls": {}}])) == [
        "misses: state dict of 999, uint8, 64 MB: no batch"
    ]


def test_a_tuning_has_no_target() -> None:
    tuned = {"part": "tune", "op": "zip", "dtype": "uint8", "mib": 64, "tuned": {"8 KB": 0.9}}
    assert list(misses([tuned])) == []
    assert "tuned: zip, uint8: {'8 KB': 0.9}" in str(table([tuned], cuda=True))


def test_parts_of_the_same_versions_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_report, "ROOT", tmp_path)
    (tmp_path / "bench").mkdir()
    here = {"device": "NVIDIA H200", "torch": "2.11"}
    name = record(here, {"a": {"verdict": "ok"}}, [row("zip", 0.9), STATE])
    assert name == "bench/results/gpu-nvidia-h200.json"
    record(here, {"b": {"verdict": "ok"}}, [row("zip", 0.8)])
    found = json.loads((tmp_path / name).read_text("utf-8"))
    assert found["cases"].keys() == {"a", "b"}
    assert [r["part"] for r in found["rows"]] == ["state", "speed"]
    record(here | {"torch": "2.12"}, {}, [])
    assert json.loads((tmp_path / name).read_text("utf-8"))["rows"] == []
