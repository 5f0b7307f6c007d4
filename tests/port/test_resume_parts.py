"""A run that was killed between the parts of a tile goes on from there."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xlayout import port
from xlayout.port.demo.weights import make_tiny
from xlayout.port.formats import open_source
from xlayout.port.formats.base import Bounds
from xlayout.port.formats.dcp_sink import DCPSink
from xlayout.port.resume import key_of


def test_a_tile_whose_parts_are_half_there_counts_as_far_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = make_tiny(tmp_path / "tiny.gguf")
    put, written = DCPSink._put, list[int]()

    def tear(self: DCPSink, name: str, array: Any, box: Bounds) -> None:
        if "linear_qkv" in name and box[-2] == (320, 384):
            raise KeyboardInterrupt("by hand")
        put(self, name, array, box)
        written.append(array.nbytes)

    monkeypatch.setattr(DCPSink, "_put", tear)
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        port.run(gguf, tmp_path / "out", to="megatron", max_ram=800_000)
    monkeypatch.setattr(DCPSink, "_put", put)
    report = port.run(gguf, tmp_path / "out", to="megatron", max_ram=800_000)
    assert report.kept_bytes == sum(written)
    speed = (report.plan.write_bytes - report.kept_bytes) / report.seconds / 1e9
    assert report.gb_per_s == pytest.approx(speed)
    assert "went on from a run that was interrupted" in str(report)
    parts = tuple((slice(0, 1), rows, slice(0, 96)) for rows in (slice(128, 192), slice(320, 384)))
    assert parts in [tile.write for move in report.plan.moves for tile in move.tiles()]


def test_a_source_of_another_name_is_another(tmp_path: Path) -> None:
    first = Path(make_tiny(tmp_path / "tiny.gguf"))
    other = Path(shutil.copy2(first, tmp_path / "other.gguf"))
    plan = port.plan(first, tmp_path / "out", to="hf")
    with open_source(first) as one, open_source(other) as two:
        assert key_of(plan, one) != key_of(plan, two)


def test_the_seconds_of_a_run_are_those_outside_its_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((1.0, 10.0, 100.0, 1000.0))  # begun, written, verified, published
    run = sys.modules["xlayout.port.run"]
    monkeypatch.setattr(run, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    report = port.run(make_tiny(tmp_path / "tiny.gguf"), tmp_path / "out", to="hf")
    assert (report.seconds, report.verify_seconds) == (9 + 900, 90)
    assert "went on from" not in str(report)
