"""What a plan promises, compared with what the run then does."""

from __future__ import annotations

import json
import pickle
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.port.models import DECODERS, save_model, save_tensors, tensors
from xlayout import port
from xlayout.errors import FormatError, PortError
from xlayout.port.formats import TensorSpec, open_source


@pytest.mark.parametrize("to", ["hf", "maxtext", "maxtext-unscanned", "dcp"])
def test_the_run_writes_exactly_what_the_plan_names(
    wide_llama: Path, tmp_path: Path, to: str
) -> None:
    plan = port.plan(wide_llama, tmp_path / "out", to=to)
    report = port.run(wide_llama, tmp_path / "out", to=to)
    assert report.plan == plan
    with open_source(tmp_path / "out") as written:
        assert dict(written.tensors) == dict(plan.specs)
        assert dict(written.config) == dict(plan.config)


def test_the_plan_knows_the_shards(
    wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("xlayout.port.value", "xlayout.port.run"):
        monkeypatch.setattr(sys.modules[module], "SHARD_BYTES", 300_000)
    plan = port.plan(wide_llama, tmp_path / "out", to="hf")
    assert len(plan.files) == 3
    assert "files: model-00001-of-00003.safetensors 2" in str(plan)
    many = replace(plan, specs={f"{i:03}.w": TensorSpec("int8", (200_000,)) for i in range(10)})
    names = (f"model-{i:05}-of-00010.safetensors" for i in (1, 10))
    assert f"files: 10 files of at most 200 kB, {' to '.join(names)}" in str(many)
    port.run(wide_llama, tmp_path / "out", to="hf")
    with open_source(tmp_path / "out") as written:
        assert written.files.keys() == plan.files.keys()
        assert all(written.files[file] > size for file, size in plan.files.items())
    assert port.verify(wide_llama, tmp_path / "out").identical


def test_experts_that_fill_no_box_are_all_in_the_table(tmp_path: Path) -> None:
    kind, config = DECODERS["mixtral"]
    source = save_model(tmp_path / "in", kind, **config)
    name = "model.layers.{}.block_sparse_moe.experts.{}.w1.weight"
    wide = [name.format(*places) for places in ((0, 1), (0, 2), (1, 4), (2, 4))]
    arrays = tensors(source)
    save_tensors(source, arrays | {key: arrays[key].astype("float32") for key in wide})
    lines = str(port.plan(source, tmp_path / "out", to="dcp")).splitlines()
    (row,) = (line for line in lines if ".w1." in line and "float32" in line)
    both = f"{name.format(0, '{1..2}')}, {name.format('{1..2}', 4)}"
    assert row.split()[:4] == both.split() * 2


def test_paths_have_names(wide_llama: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = port.plan(src=wide_llama, dst=out, to="hf")
    assert port.run(src=wide_llama, dst=out, to="hf").plan == plan
    assert port.verify(a=wide_llama, b=out).identical
    assert not port.diff(a=wide_llama, b=out).lines
    assert str(port.inspect(path=out)) == str(port.inspect(out))


def test_memory_is_said_in_any_whole_number(wide_llama: Path, tmp_path: Path) -> None:
    plan = port.plan(wide_llama, tmp_path / "out", to="hf", max_ram=5 * 10**8)
    for amount in ("500MB", 5e8, np.int64(500_000_000), np.float64(5e8)):
        same: Any = amount
        assert port.plan(wide_llama, tmp_path / "out", to="hf", max_ram=same) == plan


@pytest.mark.parametrize(
    ("verb", "option"),
    [(port.plan, "exact"), (port.run, "exact"), (port.run, "resume"), (port.run, "verify")],
)
def test_a_yes_or_no_is_a_bool(wide_llama: Path, tmp_path: Path, verb: Any, option: str) -> None:
    for answer in ("no", 1, None):
        with pytest.raises(TypeError, match=f"^{option}: {answer!r}; wanted True or False$"):
            verb(wide_llama, tmp_path / "out", to="hf", **{option: answer})
    assert not list(tmp_path.iterdir())


def test_a_plan_reads_headers_alone(
    wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xlayout.port.formats.safetensors import SafetensorsSource

    def read(*_: object, **__: object) -> None:
        raise AssertionError("a tensor was read")

    monkeypatch.setattr(SafetensorsSource, "read", read)
    port.plan(wide_llama, tmp_path / "out", to="maxtext")
    with pytest.raises(AssertionError, match="a tensor was read"):  # a sample, to say what is lost
        port.plan(wide_llama, tmp_path / "out", to="maxtext", dtype="bfloat16")


def test_a_place_that_cannot_be_told_is_found_out_by_the_plan(
    wide_llama: Path, tmp_path: Path
) -> None:
    for verb in (port.plan, port.run):
        with pytest.raises(FormatError, match=r"n/back.slash: .* wanted a path without, for tenso"):
            verb(wide_llama, tmp_path / "n" / "back\\slash", to="maxtext")
    assert not list(tmp_path.iterdir())
    port.run(wide_llama, tmp_path / "n" / "back\\slash", to="hf")
    assert port.verify(wide_llama, tmp_path / "n" / "back\\slash").identical


@pytest.mark.parametrize("to", ["hf", "maxtext"])
def test_the_plan_says_what_metadata_is_lost(own_llama: Path, tmp_path: Path, to: str) -> None:
    file = own_llama / "model.safetensors"
    arrays = tensors(own_llama)
    save_file(arrays, file, metadata={"format": "pt"})
    plan = port.plan(own_llama, tmp_path / "out", to=to)
    assert plan.unkept == ()
    assert "metadata" not in str(plan)
    save_file(arrays, file, metadata={"format": "pt", "made by": "hand", "license": "mit"})
    plan = port.plan(own_llama, tmp_path / "out", to=to)
    assert plan.unkept == ("license", "made by")
    lost = "lost, as only a model's weights are carried over: 'license', 'made by'"
    assert lost in str(plan).splitlines()
    save_file(arrays, file, metadata={f"{n:02}": "" for n in range(20)})
    assert "'07' and 12 more" in str(port.plan(own_llama, tmp_path / "out", to=to))


@pytest.mark.parametrize("name", ["out", "x.safetensors"])
def test_the_plan_says_that_a_run_to_a_taken_place_is_refused(
    wide_llama: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / name
    assert port.run(wide_llama, out, to="hf").plan.taken == ""
    plan = port.plan(wide_llama, out, to="hf")
    assert f"{out}: already holds something; wanted a" in plan.taken
    with pytest.raises(PortError, match=f"^{re.escape(plan.taken)}$"):
        port.run(wide_llama, out, to="hf")
    assert f"a run is refused: {plan.taken}" in str(plan).splitlines()


def test_a_report_can_be_sent_and_logged(wide_llama: Path, tmp_path: Path) -> None:
    report = port.run(wide_llama, tmp_path / "out", to="dcp")
    assert pickle.loads(pickle.dumps(report)) == report
    logged = json.loads(json.dumps(asdict(report), default=str))
    assert logged["plan"]["dialects"] == ["hf", "dcp"]
