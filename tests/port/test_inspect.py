"""What a checkpoint holds is told in a table, exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.port.formats.arrays import save
from xlayout import port
from xlayout.errors import PortError

STRANGER = """\
here (safetensors)
tensor             dtype    shape     bytes
─────────────────  ───────  ──────  ───────
layers.{0..11}.w   float32  30 × 2  2.88 kB
layers.{0..11}.b   int8     30        360 B
step               int64    scalar      8 B
layers.{12..13}.w  float32  30 × 1    240 B
27 tensors, 1,141 elements, 3.49 kB as read; 2 files, 5.47 kB on disk
"""


def test_equal_tensors_of_all_layers_are_one_row(tmp_path: Path) -> None:
    arrays = {"step": np.array(7)}
    for n in range(14):
        arrays[f"layers.{n}.w"] = np.zeros((30, 1 if n > 11 else 2), np.float32)
    for n in range(12):
        arrays[f"layers.{n}.b"] = np.zeros(30, np.int8)
    save(tmp_path / "here", "safetensors", arrays, max_shard_size="2KB")
    found = port.inspect(tmp_path / "here")
    assert found.verdict.startswith(f"!no family: {tmp_path}/here: no config; wanted a config.json")
    said = f"{tmp_path}/{STRANGER}{found.verdict[1:]}"
    assert str(found) == said


EXPERTS = """\
tensor                     dtype    shape  bytes
─────────────────────────  ───────  ─────  ─────
layers.4.experts.{1..2}.w  float32  3       24 B
layers.5.experts.{0..2}.w  float32  3       36 B
layers.6.experts.0.w       float32  3       12 B
6 tensors, 18 elements, 72 B as read"""


def test_experts_of_which_a_shard_has_only_some_are_all_told(tmp_path: Path) -> None:
    held = [(4, 1), (4, 2), (5, 0), (5, 1), (5, 2), (6, 0)]
    arrays = {f"layers.{a}.experts.{b}.w": np.zeros(3, np.float32) for a, b in held}
    save(tmp_path / "here", "safetensors", arrays)
    assert EXPERTS in str(port.inspect(tmp_path / "here"))


def test_a_family_that_does_not_exist_is_no_verdict_on_the_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "here", "safetensors", {"w": np.zeros(2, np.float32)})
    with pytest.raises(PortError, match=r"^family: 'lama'; known: llama, mistral, mixtral, qw"):
        port.inspect(tmp_path / "here", family="lama")
